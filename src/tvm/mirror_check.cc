/*! The one translation unit that makes the claims of mirror.h and checks them against the loaded
 * TVM. */
#define TL_EMIT_MIRROR_CLAIMS
#include "stmt.h"

namespace tl {

std::vector<MirrorClaim>& MirrorClaims() {
  static std::vector<MirrorClaim> claims;
  return claims;
}

namespace {

/*! tvm-ffi stores a field's schema as a JSON string inside JSON metadata, so quotes are escaped
 * there. */
std::string EscapeQuotes(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '"') out += '\\';
    out += c;
  }
  return out;
}

void CheckField(const MirrorClaim& claim, const FieldClaim& want, const TVMFFITypeInfo* info,
                std::vector<std::string>* wrong) {
  const std::string where = claim.type_key + "." + want.name;
  for (int i = 0; i < info->num_fields; ++i) {
    const TVMFFIFieldInfo& found = info->fields[i];
    if (std::string_view(found.name.data, found.name.size) != want.name) continue;
    if (found.offset != want.offset || found.size != want.size) {
      wrong->push_back(where + ": found offset " + std::to_string(found.offset) + " size " +
                       std::to_string(found.size) + ", wanted offset " +
                       std::to_string(want.offset) + " size " + std::to_string(want.size));
      return;
    }
    const std::string schema(found.metadata.data, found.metadata.size);
    const std::string wanted = EscapeQuotes(want.schema);
    if (schema.find(wanted) == std::string::npos) {
      wrong->push_back(where + ": found type " + schema + ", wanted " + wanted);
    }
    return;
  }
  wrong->push_back(where + ": found no such field");
}

}  // namespace

void CheckMirror(const MirrorClaim& claim, std::vector<std::string>* wrong) {
  const int32_t index = QueryTypeIndex(claim.type_key.c_str(), 0);
  if (index < 0) {
    wrong->push_back(claim.type_key + ": found no such class");
    return;
  }
  const TVMFFITypeInfo* info = TVMFFIGetTypeInfo(index);
  if (claim.size >= 0) {
    const int64_t size = info->metadata ? info->metadata->total_size : -1;
    if (size != claim.size) {
      wrong->push_back(claim.type_key + ": found size " + std::to_string(size) + ", wanted " +
                       std::to_string(claim.size));
    }
    if (info->num_fields != static_cast<int32_t>(claim.fields.size())) {
      wrong->push_back(claim.type_key + ": found " + std::to_string(info->num_fields) +
                       " fields, wanted " + std::to_string(claim.fields.size()));
    }
  }
  for (const FieldClaim& field : claim.fields) CheckField(claim, field, info, wrong);
}

std::vector<std::string> CheckMirrors() {
  std::vector<std::string> wrong;
  for (const MirrorClaim& claim : MirrorClaims()) CheckMirror(claim, &wrong);
  return wrong;
}

}  // namespace tl
