// fp8: what its config says of e4m3 weights; what a config says of the key/value cache.
#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"
#include "model_smoke/quant_config.h"

namespace quern::smoke {

void QuantConfig::read_fp8(const JsonNode& quant) {
  method_ = QuantMethod::kFp8;
  if (quant.string_or("fmt", "e4m3") != "e4m3") quant.at("fmt").fail("e4m3");
  const std::string activations = quant.string_or("activation_scheme", "dynamic");
  if (activations != "dynamic" && activations != "static") {
    quant.at("activation_scheme").fail("dynamic or static");
  }
  if (const auto block = quant.find("weight_block_size")) {
    block->require_array();
    if (block->size() != 2) block->fail("two sizes, of N and of K");
    fp8_ = {Fp8Scheme::Scales::kBlock, block->element(0).as_int(1, INT32_MAX),
            block->element(1).as_int(1, INT32_MAX)};
  }
  targets_.add("Linear", quant.file(), quant.path());
}

void QuantConfig::read_kv_cache(const JsonNode& quant) {
  for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
    const auto node = quant.find(key);
    if (!node) continue;
    const KvAlgorithm algorithm = read_kv_algorithm(*node);
    const Json& value = node->value();
    const std::string text = std::string(key) + ", " + printable(value.dump());
    if (!kv_text_.empty() && algorithm != kv_) {
      throw InputError(quant.file(), node->path(), "what is in " + at_ + "." + kv_text_,
                       at_ + "." + text);
    }
    kv_ = algorithm;
    kv_text_ = text;
  }
}

Fp8Scheme QuantConfig::fp8_scheme_of(std::string_view module) const {
  if (const ModelOptScheme* scheme = modelopt_scheme_of(module)) return scheme->fp8;
  const Group* found = group_of(module);
  return found != nullptr ? found->fp8 : fp8_;
}

}  // namespace quern::smoke
