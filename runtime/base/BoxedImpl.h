// SPDX-License-Identifier: Apache-2.0
//
// For the one source file of T that says `template class Boxed<T>;`.
#pragma once

#include "runtime/base/Boxed.h"

namespace headrace::model {

template <typename T> Boxed<T>::Boxed() : value_(new T()) {}
template <typename T> Boxed<T>::Boxed(const T &value) : value_(new T(value)) {}
template <typename T> Boxed<T>::Boxed(const Boxed &other) : value_(new T(*other.value_)) {}
template <typename T> Boxed<T> &Boxed<T>::operator=(const Boxed &other) { return *this = Boxed(other); }
template <typename T> Boxed<T>::~Boxed() { delete value_; }

} // namespace headrace::model
