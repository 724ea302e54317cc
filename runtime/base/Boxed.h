// SPDX-License-Identifier: Apache-2.0
//
// A value that lies on the heap: copied and destroyed as T is, but a header that holds one needs only T's declaration,
// and who includes that header is not rebuilt when T changes. One that was moved from may only be assigned or
// destroyed.
//
// T's source file includes BoxedImpl.h and instantiates Boxed<T>.
#pragma once

#include <utility>

namespace headrace::model {

template <typename T> class Boxed {
public:
  Boxed();
  Boxed(const T &value);
  Boxed(const Boxed &other);
  Boxed(Boxed &&other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Boxed &operator=(const Boxed &other);
  Boxed &operator=(Boxed &&other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Boxed();

  T &operator*() { return *value_; }
  const T &operator*() const { return *value_; }
  T *operator->() { return value_; }
  const T *operator->() const { return value_; }
  operator const T &() const { return *value_; }

private:
  T *value_;
};

} // namespace headrace::model
