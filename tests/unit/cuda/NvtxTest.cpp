// SPDX-License-Identifier: Apache-2.0
//
// What a profiler sees of the ranges. The profiler is this test: NVTX takes one that is linked in.
#include "runtime/cuda/Nvtx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string> seen;
std::string domainName;
std::vector<std::string> names; // registered; a handle is a position, from 1

std::string nameOf(const nvtxEventAttributes_t *attributes) {
  if (attributes->messageType != NVTX_MESSAGE_TYPE_REGISTERED || attributes->size != NVTX_EVENT_ATTRIB_STRUCT_SIZE)
    return "not a registered name";
  return names.at(reinterpret_cast<size_t>(attributes->message.registered) - 1);
}

nvtxDomainHandle_t createDomain(const char *name) {
  domainName = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&domainName);
}
nvtxStringHandle_t registerName(nvtxDomainHandle_t, const char *name) {
  names.emplace_back(name);
  return reinterpret_cast<nvtxStringHandle_t>(names.size());
}
int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  seen.push_back(*reinterpret_cast<std::string *>(domain) + ": push " + nameOf(attributes));
  return 0;
}
int pop(nvtxDomainHandle_t) {
  seen.emplace_back("pop");
  return 0;
}
nvtxRangeId_t start(nvtxDomainHandle_t, const nvtxEventAttributes_t *attributes) {
  seen.push_back("start " + nameOf(attributes));
  return 40 + seen.size();
}
void end(nvtxDomainHandle_t, nvtxRangeId_t id) { seen.push_back("end " + std::to_string(id)); }

int attach(NvtxGetExportTableFunc_t exportTable) {
  const auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(exportTable(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  const auto set = [&](NvtxCallbackIdCore2 id, auto *function) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, createDomain);
  set(NVTX_CBID_CORE2_DomainRegisterStringA, registerName);
  set(NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(NVTX_CBID_CORE2_DomainRangePop, pop);
  set(NVTX_CBID_CORE2_DomainRangeStartEx, start);
  set(NVTX_CBID_CORE2_DomainRangeEnd, end);
  return 1;
}

// Before the first range of the program: NVTX looks for a profiler then, here last of all.
const bool kAttached = (InitializeInjectionNvtx2_fnptr = attach) != nullptr;

} // namespace

namespace headrace::cuda {
namespace {

using testing::ElementsAre;

TEST(Nvtx, RangesNestAndAreNamedOnce) {
  ASSERT_TRUE(kAttached);
  const NvtxName outer("build variant 3"), inner("variant 3");
  seen.clear();
  const size_t registered = names.size();
  for (int i = 0; i < 2; ++i) {
    const NvtxRange a(outer);
    const NvtxRange b(inner);
  }
  EXPECT_THAT(seen, ElementsAre("headrace: push build variant 3", "headrace: push variant 3", "pop", "pop",
                                "headrace: push build variant 3", "headrace: push variant 3", "pop", "pop"));
  EXPECT_EQ(names.size(), registered);
}

TEST(Nvtx, SpansEndOnce) {
  const NvtxName name("load weights");
  seen.clear();
  {
    NvtxSpan span, never;
    never.end();
    span.begin(name);
    span.begin(name); // ends the first
    span.end();
    span.end();
    span.begin(name);
  }
  EXPECT_THAT(seen, ElementsAre("start load weights", "end 41", "start load weights", "end 43", "start load weights",
                                "end 45"));
}

} // namespace
} // namespace headrace::cuda
