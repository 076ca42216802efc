#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/model_smoke/test_model.h"

namespace quern::smoke::test {

/// One hostile or broken model directory: a good tiny model, bent in one place.
struct MalformedCase {
  std::string name;  ///< of the test: letters, digits, underscores
  std::function<void(TestModel*)> bend;
  std::vector<std::string> says;  ///< what the message must hold: file, key, reason
  bool int8 = false;              ///< start from the int8 model

  friend void PrintTo(const MalformedCase& c, std::ostream* os) { *os << c.name; }
};

std::vector<MalformedCase> malformed_safetensors();
std::vector<MalformedCase> malformed_index();
std::vector<MalformedCase> malformed_config();
std::vector<MalformedCase> malformed_quant();
std::vector<MalformedCase> malformed_float();
std::vector<MalformedCase> malformed_tokenizer();
std::vector<MalformedCase> all_malformed();

/// A text that every tokenizer of the corpus is asked to encode; it sets off the regex bomb.
std::string hostile_text();

/// Reads a directory as the program does: configs, every tensor with its shape, tokenizer, and
/// `hostile_text` encoded. Throws what the loader throws.
void load_everything(const std::string& dir);

}  // namespace quern::smoke::test
