// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C of who wants to know of it before it ends the process.
#pragma once

namespace headrace::tools {

// From here on an interrupt is told. `notice` is written to standard error at once, as what was asked for to end may
// take a while to: with it a second one ends the process, and where interrupts are ignored (nohup) they stay so.
void catchInterrupts(const char *notice = nullptr);
// From here on an interrupt that comes before the last was looked away from writes `notice`, and one more ends the
// process; nullptr: from here on they are told as before.
void whileBusy(const char *notice);
void letInterruptsBe(); // as before that
bool wasInterrupted();  // since the last lookAway()
void lookAway();
// Readable while an interrupt is told: for poll() beside what else is waited for. -1: interrupts are not caught.
int interruptBell();
// Ends the process as the interrupt would have that was told.
void endByInterrupt();

} // namespace headrace::tools
