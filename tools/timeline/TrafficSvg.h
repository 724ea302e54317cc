// SPDX-License-Identifier: Apache-2.0
//
// What became of requests, as SVG: a row a request, what the engine had over the same time below.
//
//   request  1 |--queueing--|-prefill-|-----decode-----|
//            2      |---queueing---|-prefill-|---decode---|          of hundreds every second, third, ... row
//            3           x                                           refused
//   KV blocks     __/--\____
//   requests      running, waiting
//            0        10 s        20 s                               one axis for all
#pragma once

#include <string>
#include <vector>

#include "runtime/serve/traffic/Traffic.h"

namespace headrace::tools {

// At most `count` samples over the same time: of several the most that each of their figures was, at the time of the
// first of them.
std::vector<serve::EngineSample> thinned(const std::vector<serve::EngineSample> &samples, size_t count);

std::string trafficSvg(const std::string &title, const std::string &subtitle, const serve::TrafficResult &result);

} // namespace headrace::tools
