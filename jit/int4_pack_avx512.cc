#include "jit/int4_pack_avx512.h"

#include <array>
#include <cstddef>

#include "jit/config_name.h"
#include "jit/generator.h"

namespace quern::jit {
namespace {

constexpr int kOrAnd = 0xF8;   // vpternlogd: dst | (src2 & src3)
constexpr int kXorAnd = 0x28;  // vpternlogd: (dst ^ src2) & src3
constexpr int kXorXor = 0x96;  // vpternlogd: dst ^ src2 ^ src3

constexpr int kDepths = 8;   // of a line
constexpr int kLanes = 16;   // columns of a panel
constexpr int kLine = 64;    // bytes
constexpr int kNibble = 15;  // what a code takes

/// The nibble of a packed word that holds depth r of its eight.
constexpr int kSlot[kDepths] = {0, 4, 2, 6, 1, 5, 3, 7};
/// The nibble of AWQ's words that holds column c of their eight.
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
/// kSlot exchanges nibbles 1 and 4, 3 and 6, which are 12 bits apart. The lower ones:
constexpr uint32_t kExchanged = 0x0000f0f0;
constexpr int kExchangeBits = 12;

/// by words:   for each line, for each panel: load a word of each column, exchange nibbles, store;
///             kRowMajor: 16 words of each column at once, transposed
/// by depths:  for each line: where its eight depths lie; then for each panel, for each depth: load
///             its words, rotate its nibbles to their place, mask them into the line; store
///             kRowMajor: gathers, each for as many depths of a line as share a word
///
/// By depths a general register holds where each depth's row of words begins and two vectors how
/// far its nibbles are rotated and what is kept of them: a nibble, or nothing where there is no
/// depth.
class Int4PackAvx512 final : public Generator {
 public:
  explicit Int4PackAvx512(const Int4PackAvx512Config& config)
      : Generator(to_string(config), /*callee_saved=*/6, config.poison), config_(config) {}

 private:
  void emit() override;
  void emit_load_args();
  void emit_word_lines();
  void emit_word_columns();
  void emit_sixteen_lines(const Xbyak::Reg64* rest);
  void emit_transpose();
  void emit_exchange(const Xbyak::Zmm& line, const Xbyak::Zmm& t, const Xbyak::Zmm& u);
  void emit_depth_lines();
  void emit_find_depth(int r);
  void emit_fetch_ahead();
  void emit_depth(int r);
  void emit_gathered_lines();
  void emit_gather();
  void emit_gathered_depth(int r);
  void emit_constants();

  template <typename Body>
  void emit_panels(int words, const Body& body);
  bool row_major() const { return config_.storage == Int4Storage::kRowMajor; }
  bool awq() const { return config_.storage == Int4Storage::kAwq; }
  bool by_words() const { return config_.by == Int4PackBy::kWords; }
  Xbyak::Address arg(size_t offset) { return qword[args() + offset]; }
  Xbyak::Reg64 load(const char* name, size_t offset) {
    const Xbyak::Reg64 reg = gp.take(name);
    mov(reg, arg(offset));
    return reg;
  }
  static Xbyak::Reg32 low32(const Xbyak::Reg64& r) { return Xbyak::Reg32(r.getIdx()); }
  Xbyak::Address depth(int r) { return dword[depths_ + 4 * r]; }
  /// In every lane: what a nibble's place r of a line takes, and where its bits begin.
  Xbyak::Address nibble_mask(int r) { return ptr_b[rip + masks_ + 4 * r]; }
  Xbyak::Address nibble_bit(int r) { return ptr_b[rip + bits_ + 4 * r]; }

  Int4PackAvx512Config config_;
  Xbyak::Reg64 to_, lines_;              // every kernel
  Xbyak::Reg64 at_, to_panel_, panels_;  // a line of panels
  Xbyak::Reg64 words_, ahead_, step_;    // by words
  Xbyak::Reg64 column_;                  // kRowMajor: the 16 addresses
  Xbyak::Reg64 depths_, offset_, last_;  // by depths
  std::array<Xbyak::Reg64, kDepths> row_;
  Xbyak::Zmm line_, word_, tmp_, sign_;
  std::array<Xbyak::Zmm, kDepths> turn_, keep_;
  std::array<Xbyak::Zmm, kLanes> in_, out_;
  std::array<Xbyak::Zmm, 2> address_;  // of eight columns each
  Xbyak::Opmask columns_, high_columns_, rest_, gathered_;
  Xbyak::Label exchanged_, masks_, bits_, awq_bits_;
};

void Int4PackAvx512::emit() {
  emit_prologue();
  emit_load_args();
  if (by_words() && row_major()) {
    emit_word_columns();
  } else if (by_words()) {
    emit_word_lines();
  } else if (row_major()) {
    emit_gathered_lines();
  } else {
    emit_depth_lines();
  }
  emit_return();
  emit_constants();
}

void Int4PackAvx512::emit_load_args() {
  section("load_args");
  columns_ = mask.take("columns");
  high_columns_ = mask.take("high_columns");
  {
    TakenGp bits(gp, "bits"), count(gp, "count");
    mov(*count, arg(offsetof(Int4PackArgs, columns)));
    emit_low_bits(*bits, *count);
    kmovq(columns_, *bits);
    shr(*bits, 8);
    kmovq(high_columns_, *bits);
  }
  to_ = load("to", offsetof(Int4PackArgs, to));
  lines_ = load("lines_left", offsetof(Int4PackArgs, lines));
}

/// The line at to_ of each panel: `body` leaves it in line_. at_: bytes behind the first panel's
/// words, of which a panel takes so many.
template <typename Body>
void Int4PackAvx512::emit_panels(int words, const Body& body) {
  mov(to_panel_, to_);
  mov(panels_, arg(offsetof(Int4PackArgs, panels)));
  loop(panels_, [&] {
    body();
    vmovdqu32(ptr[to_panel_], line_);
    add(at_, 4 * words);
    add(to_panel_, arg(offsetof(Int4PackArgs, to_step)));
  });
  add(to_, kLine);
}

void Int4PackAvx512::emit_word_lines() {
  section("word_lines");
  words_ = load("words", offsetof(Int4PackArgs, words));
  step_ = load("row_step", offsetof(Int4PackArgs, row_step));
  ahead_ = load("ahead", offsetof(Int4PackArgs, ahead));
  at_ = gp.take("at");
  to_panel_ = gp.take("to.panel");
  panels_ = gp.take("panels_left");
  line_ = vec.take("line");
  tmp_ = vec.take("tmp");
  word_ = vec.take("tmp.1");
  loop(lines_, [&] {
    mov(at_, words_);
    emit_panels(kLanes, [&] {
      prefetcht0(ptr[at_ + ahead_]);
      vmovdqu32(line_ | columns_ | T_z, ptr[at_]);
      emit_exchange(line_, tmp_, word_);
    });
    add(words_, step_);
  });
}

// t = (line ^ line >> 12) where the lower nibbles of the pairs are; line ^= t ^ t << 12.
void Int4PackAvx512::emit_exchange(const Xbyak::Zmm& line, const Xbyak::Zmm& t,
                                   const Xbyak::Zmm& u) {
  vpsrld(t, line, kExchangeBits);
  vpternlogd(t, line, ptr_b[rip + exchanged_], kXorAnd);
  vpslld(u, t, kExchangeBits);
  vpternlogd(line | columns_ | T_z, t, u, kXorXor);
}

void Int4PackAvx512::emit_word_columns() {
  section("word_columns");
  column_ = load("column", offsetof(Int4PackArgs, column));
  offset_ = load("offset", offsetof(Int4PackArgs, column_offset));
  ahead_ = load("ahead", offsetof(Int4PackArgs, ahead));
  at_ = gp.take("at");
  rest_ = mask.take("rest");
  for (int i = 0; i < kLanes; ++i) {
    in_[i] = vec.take("in." + std::to_string(i));
    out_[i] = vec.take("out." + std::to_string(i));
  }
  TakenGp rest(gp, "rest");
  Xbyak::Label no_sixteen, done;
  mov(*rest, lines_);
  and_(*rest, kLanes - 1);
  shr(lines_, 4);
  jz(no_sixteen, T_NEAR);
  loop(lines_, [&] { emit_sixteen_lines(nullptr); });
  L(no_sixteen);
  test(*rest, *rest);
  jz(done, T_NEAR);
  section("rest");
  emit_low_bits(at_, *rest);
  kmovq(rest_, at_);
  emit_sixteen_lines(&*rest);
  L(done);
}

// With `rest`, so many of them, 1 to 15: it is destroyed.
void Int4PackAvx512::emit_sixteen_lines(const Xbyak::Reg64* rest) {
  for (int c = 0; c < kLanes; ++c) {
    mov(at_, ptr[column_ + 8 * c]);
    add(at_, offset_);
    if (rest == nullptr) {
      vmovdqu32(in_[c], ptr[at_]);
      prefetcht0(ptr[at_ + ahead_]);
    } else {
      vmovdqu32(in_[c] | rest_ | T_z, ptr[at_]);
    }
  }
  emit_transpose();
  Xbyak::Label done;
  for (int i = 0; i < (rest == nullptr ? kLanes : kLanes - 1); ++i) {
    emit_exchange(in_[i], out_[2 * i % kLanes], out_[2 * i % kLanes + 1]);
    vmovdqu32(ptr[to_ + kLine * i], in_[i]);
    if (rest == nullptr) continue;
    dec(*rest);
    jz(done, T_NEAR);
  }
  L(done);
  if (rest != nullptr) return;
  add(offset_, kLine);
  add(to_, kLine * kLanes);
}

// 16 x 16 words: in_[i] becomes word i of each column. Pairs and fours of columns within 128 bits,
// then 128 bits at a time.
void Int4PackAvx512::emit_transpose() {
  for (int i = 0; i < kLanes; i += 2) {
    vpunpckldq(out_[i], in_[i], in_[i + 1]);
    vpunpckhdq(out_[i + 1], in_[i], in_[i + 1]);
  }
  for (int i = 0; i < kLanes; i += 4) {
    vpunpcklqdq(in_[i], out_[i], out_[i + 2]);
    vpunpckhqdq(in_[i + 1], out_[i], out_[i + 2]);
    vpunpcklqdq(in_[i + 2], out_[i + 1], out_[i + 3]);
    vpunpckhqdq(in_[i + 3], out_[i + 1], out_[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    vshufi32x4(out_[i], in_[i], in_[i + 4], 0x44);
    vshufi32x4(out_[i + 4], in_[i], in_[i + 4], 0xee);
    vshufi32x4(out_[i + 8], in_[i + 8], in_[i + 12], 0x44);
    vshufi32x4(out_[i + 12], in_[i + 8], in_[i + 12], 0xee);
    vshufi32x4(in_[i], out_[i], out_[i + 8], 0x88);
    vshufi32x4(in_[i + 4], out_[i], out_[i + 8], 0xdd);
    vshufi32x4(in_[i + 8], out_[i + 4], out_[i + 12], 0x88);
    vshufi32x4(in_[i + 12], out_[i + 4], out_[i + 12], 0xdd);
  }
}

void Int4PackAvx512::emit_depth_lines() {
  section("setup");
  depths_ = load("depths", offsetof(Int4PackArgs, depths));
  at_ = gp.take("at");
  to_panel_ = gp.take("to.panel");
  panels_ = gp.take("panels_left");
  line_ = vec.take("line");
  word_ = vec.take("word");
  sign_ = vec.take("sign");
  for (int r = 0; r < kDepths; ++r) {
    row_[r] = gp.take("row." + std::to_string(r));
    turn_[r] = vec.take("turn." + std::to_string(r));
    keep_[r] = vec.take("keep." + std::to_string(r));
  }
  if (awq()) {
    kshiftlw(high_columns_, high_columns_, 8);
    for (int r = 0; r < kDepths; ++r) {
      vmovdqu32(turn_[r], ptr[rip + awq_bits_]);
      vpsubd(turn_[r], turn_[r], nibble_bit(r));
    }
  }
  loop(lines_, [&] {
    section("find_depths");
    for (int r = 0; r < kDepths; ++r) emit_find_depth(r);
    if (awq()) emit_fetch_ahead();
    section("depth_lines");
    xor_(at_, at_);
    emit_panels(awq() ? 2 : kLanes, [&] {
      vpxord(line_, line_, line_);
      for (int r = 0; r < kDepths; ++r) emit_depth(r);
    });
    add(depths_, 4 * kDepths);
  });
}

// No depth: the first row, of which nothing is kept. at_ is free here.
void Int4PackAvx512::emit_find_depth(int r) {
  mov(low32(row_[r]), depth(r));
  xor_(at_, at_);
  test(low32(row_[r]), low32(row_[r]));
  cmovs(low32(row_[r]), low32(at_));
  if (!awq()) shr(low32(row_[r]), 3);
  imul(row_[r], arg(offsetof(Int4PackArgs, row_step)));
  add(row_[r], arg(offsetof(Int4PackArgs, words)));
  vpbroadcastd(word_, depth(r));
  vpsrad(sign_, word_, 31);
  vpandnd(keep_[r], sign_, nibble_mask(r));
  if (awq()) return;
  vpslld(turn_[r], word_, 2);
  vpsubd(turn_[r], turn_[r], nibble_bit(r));
}

// Rows that come next where depths ascend. 64 bytes are the words of eight panels.
void Int4PackAvx512::emit_fetch_ahead() {
  mov(at_, arg(offsetof(Int4PackArgs, ahead)));
  mov(panels_, arg(offsetof(Int4PackArgs, panels)));
  add(panels_, 7);
  shr(panels_, 3);
  loop(panels_, [&] {
    for (int r = 0; r < kDepths; ++r) prefetcht0(ptr[row_[r] + at_]);
    add(at_, kLine);
  });
}

void Int4PackAvx512::emit_depth(int r) {
  if (awq()) {
    vpbroadcastd(word_ | columns_ | T_z, ptr[row_[r] + at_]);
    vpbroadcastd(word_ | high_columns_, ptr[row_[r] + at_ + 4]);
  } else {
    vmovdqu32(word_ | columns_ | T_z, ptr[row_[r] + at_]);
  }
  vprorvd(word_, word_, turn_[r]);
  vpternlogd(line_, word_, keep_[r], kOrAnd);
}

void Int4PackAvx512::emit_gathered_lines() {
  section("gathered_lines");
  column_ = load("column", offsetof(Int4PackArgs, column));
  depths_ = load("depths", offsetof(Int4PackArgs, depths));
  offset_ = gp.take("offset");
  last_ = gp.take("offset.last");
  gathered_ = mask.take("gathered");
  line_ = vec.take("line");
  word_ = vec.take("word");
  tmp_ = vec.take("tmp");
  turn_[0] = vec.take("turn");
  for (int i = 0; i < 2; ++i) {
    address_[i] = vec.take("address." + std::to_string(i));
    vmovdqu64(address_[i], ptr[column_ + kLine * i]);
  }
  mov(last_, -1);
  loop(lines_, [&] {
    vpxord(line_, line_, line_);
    for (int r = 0; r < kDepths; ++r) emit_gathered_depth(r);
    vmovdqa32(line_ | columns_ | T_z, line_);
    vmovdqu32(ptr[to_], line_);
    add(to_, kLine);
    add(depths_, 4 * kDepths);
  });
}

void Int4PackAvx512::emit_gathered_depth(int r) {
  Xbyak::Label none, there;
  mov(low32(offset_), depth(r));
  test(low32(offset_), low32(offset_));
  js(none, T_NEAR);
  shr(low32(offset_), 3);
  cmp(offset_, last_);
  je(there, T_NEAR);
  mov(last_, offset_);
  emit_gather();
  L(there);
  vpbroadcastd(turn_[0], depth(r));
  vpslld(turn_[0], turn_[0], 2);
  vpsubd(turn_[0], turn_[0], nibble_bit(r));
  vprorvd(tmp_, word_, turn_[0]);
  vpternlogd(line_, tmp_, nibble_mask(r), kOrAnd);
  L(none);
}

// word_ = word offset_ of each column. Columns that do not exist are not read.
void Int4PackAvx512::emit_gather() {
  const Xbyak::Ymm low(word_.getIdx()), high(tmp_.getIdx());
  const auto gather = [&](const Xbyak::Ymm& to, const Xbyak::Opmask& which, int half) {
    kmovw(gathered_, which);
    vpxord(to, to, to);
    vpgatherqd(to | gathered_, ptr[offset_ + address_[half]]);
  };
  shl(offset_, 2);
  gather(low, columns_, 0);
  gather(high, high_columns_, 1);
  vinserti64x4(word_, word_, high, 1);
}

void Int4PackAvx512::emit_constants() {
  section("constants");
  align(64);
  L(awq_bits_);
  for (int c = 0; c < kLanes; ++c) dd(static_cast<uint32_t>(4 * kAwqNibble[c % 8]));
  L(masks_);
  for (const int slot : kSlot) dd(static_cast<uint32_t>(kNibble) << (4 * slot));
  L(bits_);
  for (const int slot : kSlot) dd(static_cast<uint32_t>(4 * slot));
  L(exchanged_);
  dd(kExchanged);
}

const char* word_of(Int4Storage storage) {
  switch (storage) {
    case Int4Storage::kGptq:
      return "gptq";
    case Int4Storage::kAwq:
      return "awq";
    case Int4Storage::kRowMajor:
      return "rows";
  }
  return "?";
}

}  // namespace

std::string to_string(const Int4PackAvx512Config& config) {
  std::string name = "int4_pack.avx512.";
  name += word_of(config.storage);
  name += config.by == Int4PackBy::kWords ? ".words" : ".depths";
  if (config.poison) name += ".poison";
  return name;
}

std::optional<Int4PackAvx512Config> parse_int4_pack_avx512(std::string_view name) {
  for (const auto storage : {Int4Storage::kGptq, Int4Storage::kAwq, Int4Storage::kRowMajor}) {
    for (const auto by : {Int4PackBy::kWords, Int4PackBy::kDepths}) {
      for (const bool poison : {false, true}) {
        const Int4PackAvx512Config config{storage, by, poison};
        if (to_string(config) == name) return config;
      }
    }
  }
  return std::nullopt;
}

const char* invalid(const Int4PackAvx512Config& config) {
  if (config.storage > Int4Storage::kRowMajor) return "storage must be gptq, awq or rows";
  if (config.by > Int4PackBy::kDepths) return "by must be words or depths";
  if (config.storage == Int4Storage::kAwq && config.by == Int4PackBy::kWords) {
    return "awq is by depths: its words are of one depth";
  }
  return nullptr;
}

Result<GeneratedCode> generate(const Int4PackAvx512Config& config) {
  if (const char* rule = invalid(config)) return Status(StatusCode::kInvalidArgument, rule);
  return Int4PackAvx512(config).generate();
}

}  // namespace quern::jit
