#pragma once

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "xbyak/xbyak.h"

namespace quern::jit {

/// Which registers are free, by name. Taking a register that is in use, or more than there are,
/// stops the generator with both names: a generator never aliases registers by declaration.
/// Generation fails cleanly, since Generator::generate turns the exception into a Status.
template <typename Reg, int kCount>
class RegPool {
 public:
  /// Only the registers whose numbers are listed may be handed out, in this order.
  RegPool(const char* kind, std::vector<int> order) : kind_(kind), order_(std::move(order)) {}

  Reg take(const std::string& name) {
    for (int index : order_) {
      if (owner_[index].empty()) return mark(index, name);
    }
    throw std::logic_error("no free " + kind_ + " register for '" + name + "': " + map());
  }

  Reg take_index(int index, const std::string& name) {
    if (!owner_[index].empty()) {
      throw std::logic_error(register_name(index) + " wanted for '" + name + "' but held by '" +
                             owner_[index] + "'");
    }
    return mark(index, name);
  }

  void give_back(const Reg& reg) {
    if (owner_[reg.getIdx()].empty()) {
      throw std::logic_error(register_name(reg.getIdx()) + " given back twice");
    }
    owner_[reg.getIdx()].clear();
  }

  /// How many can still be taken.
  int free() const {
    int count = 0;
    for (int index : order_) count += owner_[static_cast<size_t>(index)].empty() ? 1 : 0;
    return count;
  }

  /// Every register ever taken and its last holder, "zmm0=acc.0.0 zmm1=acc.0.1 ...".
  std::string map() const {
    std::string text;
    for (int i = 0; i < kCount; ++i) {
      if (last_[i].empty()) continue;
      if (!text.empty()) text += ' ';
      text += register_name(i) + '=' + last_[i];
    }
    return text;
  }

 private:
  /// As a disassembler writes it: "rdi", "zmm0", "k1".
  static std::string register_name(int index) { return Reg(index).toString(); }

  Reg mark(int index, const std::string& name) {
    owner_[index] = name;
    last_[index] = name;
    return Reg(index);
  }

  std::string kind_;
  std::vector<int> order_;
  std::array<std::string, kCount> owner_{};
  std::array<std::string, kCount> last_{};
};

using GpPool = RegPool<Xbyak::Reg64, 16>;
using VecPool = RegPool<Xbyak::Zmm, 32>;
using MaskPool = RegPool<Xbyak::Opmask, 8>;

/// Holds one register for a scope.
template <typename Reg, int kCount>
class Taken {
 public:
  Taken(RegPool<Reg, kCount>& pool, const std::string& name) : pool_(pool), reg_(pool.take(name)) {}
  ~Taken() noexcept(false) { pool_.give_back(reg_); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  const Reg& operator*() const { return reg_; }
  operator const Reg&() const { return reg_; }

 private:
  RegPool<Reg, kCount>& pool_;
  Reg reg_;
};

using TakenGp = Taken<Xbyak::Reg64, 16>;
using TakenVec = Taken<Xbyak::Zmm, 32>;
using TakenMask = Taken<Xbyak::Opmask, 8>;

}  // namespace quern::jit
