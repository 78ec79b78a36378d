"""Kinds of kernels for which configurations are suggested."""

from tilelang.carver.template.attention import FlashAttentionTemplate as FlashAttentionTemplate
from tilelang.carver.template.base import BaseTemplate as BaseTemplate
from tilelang.carver.template.matmul import MatmulTemplate as MatmulTemplate
from tilelang.carver.template.streaming import ElementwiseTemplate as ElementwiseTemplate
from tilelang.carver.template.streaming import GEMVTemplate as GEMVTemplate
from tilelang.carver.template.streaming import GeneralReductionTemplate as GeneralReductionTemplate
