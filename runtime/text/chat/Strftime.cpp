// SPDX-License-Identifier: Apache-2.0
#include <ctime>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/PyText.h"
#include "runtime/text/chat/TextParts.h"

namespace headrace::text::jinja {

// datetime.now().strftime(), which knows no zone, one directive at a time: the C library's may have widths of its own.
Value strftimeNow(Machine &machine, const Value &, const Arguments &arguments) {
  constexpr std::string_view kDirectives = "aAbBcdHIjmMpSUwWxXyYDFTReGuVhnteklrC";
  const std::string &format = textOf(arguments[0]);
  const time_t seconds = machine.unixSeconds();
  struct tm time {};
  tzset(); // localtime_r() alone need not look at TZ
  if (!localtime_r(&seconds, &time))
    fail("strftime_now: the time has no date");
  std::string made;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      append(machine.heap(), made, std::string_view(format).substr(i, 1));
      continue;
    }
    const bool unpadded = i + 1 < format.size() && format[i + 1] == '-';
    i += 1 + unpadded;
    const char directive = i < format.size() ? format[i] : 0;
    if (directive == '%') {
      append(machine.heap(), made, "%");
    } else if (directive == 'f') {
      append(machine.heap(), made, "000000");
    } else if (directive != 0 && kDirectives.find(directive) != std::string_view::npos) {
      const char one[] = {'%', unpadded ? '-' : directive, unpadded ? directive : '\0', '\0'};
      char text[256];
      append(machine.heap(), made, std::string_view(text, strftime(text, sizeof text, one, &time)));
    } else if (directive != 'z' && directive != 'Z') // without a zone both are empty
      fail(model::cat("strftime_now: the directive '%", printable(format.substr(i, 1), 4), "' is not supported"));
  }
  return machine.text(std::move(made));
}

} // namespace headrace::text::jinja
