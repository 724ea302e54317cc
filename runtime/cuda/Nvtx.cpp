// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Nvtx.h"

namespace headrace::cuda {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t one = nvtxDomainCreateA("headrace"); // null without a profiler
  return one;
}

} // namespace

NvtxName::NvtxName(const std::string &name) : handle_(nvtxDomainRegisterStringA(domain(), name.c_str())) {}

nvtxEventAttributes_t NvtxName::attributes() const {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = handle_;
  return attributes;
}

NvtxRange::NvtxRange(const NvtxName &name) {
  const nvtxEventAttributes_t attributes = name.attributes();
  (void)nvtxDomainRangePushEx(domain(), &attributes);
}
NvtxRange::~NvtxRange() { (void)nvtxDomainRangePop(domain()); }

void NvtxSpan::begin(const NvtxName &name) {
  end();
  const nvtxEventAttributes_t attributes = name.attributes();
  id_ = nvtxDomainRangeStartEx(domain(), &attributes);
  open_ = true;
}

void NvtxSpan::end() {
  if (open_)
    nvtxDomainRangeEnd(domain(), id_);
  open_ = false;
}

} // namespace headrace::cuda
