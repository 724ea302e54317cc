// SPDX-License-Identifier: Apache-2.0
//
// What tests set and see of the made-up libcupti; its functions are found in the library by name.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

struct FakeCupti {
  uint32_t version = CUPTI_API_VERSION;
  uint64_t now = 0;
  bool otherSubscriber = false; // another tool is there
  bool onlyForced = false;      // records are delivered only by a forced flush
  uint64_t dropped = 0;
  int subscribers = 0;
  std::set<CUpti_ActivityKind> enabledKinds;
  bool cloneCallbacks = false;
  int buffersHeld = 0; // different ones that were given
  std::set<uint8_t *> buffersSeen;
  // The nth call of that name fails; what gives something back does so all the same. Calls by name.
  std::string failing;
  uint64_t nth = 1;
  std::map<std::string, uint64_t> calls;
};

extern "C" {
FakeCupti *headraceFakeCupti();
void headraceFakeCuptiClone(uint64_t original, uint64_t clone);
void headraceFakeCuptiRecord(bool copy, uint64_t node, uint32_t launch, uint64_t start, uint64_t end);
}
