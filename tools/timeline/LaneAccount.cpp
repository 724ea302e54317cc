// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/LaneAccount.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

// "qkv" of "L3 qkv" and "L3.1 qkv", "sample" of "sample.1".
std::string kindOf(const Bar &bar) {
  if (bar.layer >= 0)
    return bar.name.substr(bar.name.find(' ') + 1);
  return bar.miniBatch < 0 ? bar.name : bar.name.substr(0, bar.name.rfind('.'));
}

LaneAccount::Part &partOf(std::vector<LaneAccount::Part> &kinds, const std::string &name) {
  const auto it = std::find_if(kinds.begin(), kinds.end(), [&](const auto &part) { return part.name == name; });
  return it != kinds.end() ? *it : kinds.emplace_back(LaneAccount::Part{name, 0});
}

std::string nsText(int64_t ns) { return formatNs(static_cast<uint64_t>(std::abs(ns))); }

std::vector<std::string> row(const std::string &lane, const std::string &part, int64_t from, int64_t to) {
  const std::string sign = to == from ? "" : to < from ? "-" : "+";
  return {lane, part, (from < 0 ? "-" : "") + nsText(from), (to < 0 ? "-" : "") + nsText(to), sign + nsText(to - from)};
}

} // namespace

int64_t LaneAccount::of(const std::string &kind) const {
  const auto it = std::find_if(kinds.begin(), kinds.end(), [&](const Part &part) { return part.name == kind; });
  return it == kinds.end() ? 0 : it->ns;
}

int64_t LaneAccount::totalNs() const {
  int64_t sum = waitNs + idleNs;
  for (const Part &part : kinds)
    sum += part.ns;
  return sum;
}

LaneAccount accountOf(const Track &track, plan::Lane lane) {
  LaneAccount account;
  account.waitNs = static_cast<int64_t>(track.waitNs[static_cast<int>(lane)]);
  account.idleNs = static_cast<int64_t>(track.iterationNs) - account.waitNs;
  for (const Bar &bar : track.bars) {
    if (bar.lane != lane)
      continue;
    const auto ns = static_cast<int64_t>(bar.endNs - bar.startNs);
    partOf(account.kinds, kindOf(bar)).ns += ns;
    account.idleNs -= ns;
  }
  return account;
}

std::string accountsText(const Track &from, const Track &to, const std::vector<plan::Lane> &lanes) {
  std::vector<std::vector<std::string>> table = {{"lane", "part", from.name, to.name, "difference"}};
  for (const plan::Lane lane : lanes) {
    const LaneAccount was = accountOf(from, lane), is = accountOf(to, lane);
    std::vector<LaneAccount::Part> kinds = was.kinds;
    for (const LaneAccount::Part &part : is.kinds)
      partOf(kinds, part.name);
    std::string name = plan::laneName(lane); // in the lane's first line
    for (const LaneAccount::Part &part : kinds)
      if (was.of(part.name) != 0 || is.of(part.name) != 0)
        table.push_back(row(std::exchange(name, ""), part.name, was.of(part.name), is.of(part.name)));
    table.push_back(row(std::exchange(name, ""), "waits", was.waitNs, is.waitNs));
    table.push_back(row("", "idle", was.idleNs, is.idleNs));
    table.push_back(row("", "iteration", was.totalNs(), is.totalNs()));
  }
  return formatTable(table);
}

} // namespace headrace::tools
