// SPDX-License-Identifier: Apache-2.0
// Where the tree is: tests and benchmarks read shipped examples and goldens there. Behind a function, so that one
// object file knows the path and every other one is the same in each checkout (and comes from the compiler's cache).
#ifndef HEADRACE_TESTS_SUPPORT_SOURCEDIR_H
#define HEADRACE_TESTS_SUPPORT_SOURCEDIR_H

#include <string>

namespace headrace {

// The tree's folder, without a slash at its end; "." in programs that are carried to another machine.
std::string sourceDir();

} // namespace headrace

#endif // HEADRACE_TESTS_SUPPORT_SOURCEDIR_H
