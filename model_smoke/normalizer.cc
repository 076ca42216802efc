#include "model_smoke/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include <nlohmann/json.hpp>

#include "model_smoke/input_error.h"

namespace quern::smoke {

Normalizer::Normalizer(const JsonNode& node) {
  read(node);
}

void Normalizer::read(const JsonNode& node) {
  if (node.value().is_null()) return;
  const JsonNode type = node.at("type", "the name of a normalizer");
  const std::string& name = type.as_string();
  if (name == "Sequence") {
    const JsonNode list = node.at("normalizers", "an array");
    list.require_array();
    for (size_t i = 0; i < list.size(); ++i) read(list.element(i));
    return;
  }
  if (forms_.size() == 16) type.fail("at most 16 normalizers");
  if (name == "NFC") {
    forms_.push_back(Form::kNfc);
  } else if (name == "NFD") {
    forms_.push_back(Form::kNfd);
  } else if (name == "NFKC") {
    forms_.push_back(Form::kNfkc);
  } else if (name == "NFKD") {
    forms_.push_back(Form::kNfkd);
  } else {
    type.fail("NFC, NFD, NFKC, NFKD, or a Sequence of them");
  }
}

std::string Normalizer::apply_form(Form form, std::string_view text) {
  int options = UTF8PROC_STABLE;
  const bool composed = form == Form::kNfc || form == Form::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::kNfkc || form == Form::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                          static_cast<utf8proc_ssize_t>(text.size()), &raw,
                                          static_cast<utf8proc_option_t>(options));
  if (n == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (n < 0) throw InputError("text", "", "text that can be normalized", utf8proc_errmsg(n));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(raw, std::free);
  return std::string(reinterpret_cast<const char*>(raw), static_cast<size_t>(n));
}

std::string Normalizer::apply(std::string_view text) const {
  std::string s(text);
  // ASCII is its own normal form in all four.
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (forms_.empty() || std::all_of(s.begin(), s.end(), is_ascii)) return s;
  for (const Form form : forms_) s = apply_form(form, s);
  return s;
}

}  // namespace quern::smoke
