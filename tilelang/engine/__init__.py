"""From a traced program to device source and a launch plan: phase.py lists the passes."""
