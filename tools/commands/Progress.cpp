// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/Progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>

#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

constexpr double kFirst = 1, kRedraw = 0.25; // seconds: before a terminal's line, and between two of them
constexpr double kFirstLine = 10, kLines = 10;

std::string seconds(double s) {
  return s < 90 ? absl::StrFormat("%.0f s", std::ceil(s)) : absl::StrFormat("%.0f min", std::ceil(s / 60));
}

std::string bar(double share) {
  constexpr int kWidth = 24;
  const auto filled = static_cast<size_t>(std::lround(share * kWidth));
  return absl::StrFormat("[%s%s] %3.0f%%", std::string(filled, '#'), std::string(kWidth - filled, '.'),
                         std::floor(share * 100));
}

std::optional<size_t> terminalColumns() {
  if (::isatty(STDERR_FILENO) != 1)
    return std::nullopt;
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The process' one line, and the thread that draws it however long a step takes between two updates.
class Console {
public:
  static Console &get() {
    static Console console;
    return console;
  }

  void silence() {
    const std::lock_guard lock(mutex_);
    silent_ = true;
  }
  void begin(std::string label, Amount amount) {
    const std::lock_guard lock(mutex_);
    const bool first = line_.idle();
    line_.begin(std::move(label), amount, now());
    if (first && !silent_)
      startDrawing();
  }
  template <class Change> void change(Change &&change) {
    const std::lock_guard lock(mutex_);
    change(line_, now());
  }
  void end() {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      write(line_.end());
      if (!line_.idle())
        return;
      ended = std::move(drawer_);
    }
    wake_.notify_all();
    if (ended.joinable())
      ended.join();
  }

private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static void write(const std::string &text) {
    if (text.empty())
      return;
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  }
  void startDrawing() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the thread that works
    try {
      drawer_ = std::thread([this] {
        std::unique_lock lock(mutex_);
        while (!wake_.wait_for(lock, std::chrono::milliseconds(250), [this] { return line_.idle(); }))
          if (!silent_)
            write(line_.tick(now()));
      });
    } catch (const std::system_error &) { // no thread to be had: nothing is said
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread drawer_; // while there is a step
  ProgressLine line_{terminalColumns()};
  bool silent_ = false;
};

} // namespace

Progress::Progress(std::string label, Amount amount) { Console::get().begin(std::move(label), amount); }
Progress::~Progress() { Console::get().end(); }

void Progress::update(uint64_t done, uint64_t total) {
  Console::get().change([&](ProgressLine &line, double now) { line.update(done, total, now); });
}

void Progress::note(std::string text) {
  Console::get().change([&](ProgressLine &line, double) { line.note(std::move(text)); });
}

void silenceProgress() { Console::get().silence(); }

std::string ProgressLine::counts(const Step &step) {
  const uint64_t done = std::min(step.done, step.total);
  return step.amount == Amount::Bytes ? formatBytes(done) + " of " + formatBytes(step.total)
                                      : absl::StrFormat("%d of %d", done, step.total);
}

void ProgressLine::begin(std::string label, Amount amount, double now) {
  if (idle())
    said_ = false;
  steps_.push_back({std::move(label), "", amount, now});
  steps_.back().changedAt = now;
}

void ProgressLine::update(uint64_t done, uint64_t total, double now) {
  Step &step = steps_.back();
  if (total != step.total)
    step.shown = 0;
  if (step.amount == Amount::Rounds && done > step.done) {
    step.roundSeconds = (now - step.changedAt) / static_cast<double>(done - step.done);
    step.changedAt = now;
  }
  step.done = done;
  step.total = total;
}

void ProgressLine::note(std::string text) { steps_.back().note = std::move(text); }

std::string ProgressLine::end() {
  steps_.pop_back();
  if (!idle() || drawn_.empty())
    return "";
  drawn_.clear();
  return "\r\x1b[K";
}

std::string ProgressLine::tick(double now) {
  if (idle())
    return "";
  const double first = columns_ ? kFirst : kFirstLine, next = columns_ ? kRedraw : kLines;
  if (said_ ? now - saidAt_ < next : now - steps_.front().startedAt < first)
    return "";
  std::string line = text(now);
  if (columns_ && line.size() >= *columns_) // a line that wraps is not taken away
    line = line.substr(0, *columns_ - 1);
  if (columns_ && line == drawn_)
    return "";
  said_ = true;
  saidAt_ = now;
  if (!columns_)
    return "headrace: " + line + "\n";
  drawn_ = line;
  return "\r" + line + "\x1b[K";
}

double ProgressLine::share(size_t step) const {
  const Step &of = steps_[step];
  if (of.total == 0)
    return 0;
  const uint64_t done = std::min(of.done, of.total);
  const double within = done < of.total && step + 1 < steps_.size() ? share(step + 1) : 0;
  return (static_cast<double>(done) + within) / static_cast<double>(of.total);
}

std::string ProgressLine::text(double now) {
  std::string out;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step &step = steps_[i];
    out += (i == 0 ? "" : ": ") + step.label;
    if (step.total > 0 && steps_.size() > 1)
      out += " " + (step.amount == Amount::Bytes
                        ? counts(step)
                        : absl::StrFormat("%d of %d", std::min(step.done + 1, step.total), step.total)); // at work
    if (!step.note.empty() && i + 1 < steps_.size())
      out += ", " + step.note;
  }
  std::vector<std::string> more;
  std::string left;
  Step &whole = steps_.front();
  const Step &step = steps_.back();
  if (whole.total > 0) {
    whole.shown = std::max(whole.shown, share(0));
    out += "  " + bar(whole.shown);
  }
  if (whole.total > 0 && steps_.size() == 1) {
    more.push_back(counts(step));
    const double elapsed = now - step.startedAt, done = share(0);
    if (step.amount == Amount::Bytes && done > 0 && elapsed >= kFirst)
      left = seconds(elapsed * (1 - done) / done);
    if (step.amount == Amount::Rounds && step.roundSeconds > 0)
      left =
          seconds(std::max(0.0, step.roundSeconds * static_cast<double>(step.total - std::min(step.done, step.total)) -
                                    (now - step.changedAt)));
  }
  more.push_back(left.empty() ? seconds(std::floor(now - whole.startedAt)) + " so far" : "about " + left + " left");
  if (!step.note.empty()) // last: a narrow terminal cuts it off
    more.push_back(step.note);
  for (size_t i = 0; i < more.size(); ++i)
    out += (i == 0 ? "  " : ", ") + more[i];
  return out;
}

} // namespace headrace::tools
