// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RecordCosts.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cost/RecordFile.h"
#include "tests/support/TestFiles.h"
#include "tests/unit/cost/Records.h"
#include "tools/report/RecordReport.h"

namespace headrace::tools {
namespace {

using model::codeOf;
using model::messageOf;
using testing::HasSubstr;
using testing::Not;

model::Job jobOf(model::DeviceKind kind) {
  model::Job job;
  job.model.emplace();
  job.model->spec = cost::smallLlama();
  job.hardware = cost::roundHardware();
  job.hardware->kind = kind;
  return job;
}

// A complete record of the job, every time the roofline's.
cost::Record recordOf(const model::Job &job, bool simulated) {
  const cost::Identity identity = recordIdentity(job, simulated);
  cost::Record record = cost::emptyRecord(job.model->spec, {1, 2}, {4, 8});
  record.identity = identity;
  record.hardware = *job.hardware;
  const cost::Roofline truth(job.model->spec, *job.hardware, identity.activation, identity.kv);
  return cost::measured(std::move(record), truth, {1000, 1'000'000});
}

class RecordCosts : public testing::Test {
protected:
  absl::Status opened(const cost::Record &record, const model::Job &job) {
    EXPECT_TRUE(cost::writeRecord(record, path).ok());
    return openRecordCosts(path, job).status();
  }
  void refused(const cost::Record &record, const model::Job &job, const std::string &message) {
    const absl::Status status = opened(record, job);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(path));
  }
  model::TempFolder folder;
  const std::string path = folder.file("record.toml");
};

TEST_F(RecordCosts, OpensARecordOfTheSameJob) {
  for (const auto kind : {model::DeviceKind::Host, model::DeviceKind::Cuda})
    for (const bool simulated : {false, true}) {
      const model::Job job = jobOf(kind);
      EXPECT_TRUE(opened(recordOf(job, simulated), job).ok()) << opened(recordOf(job, simulated), job);
    }
  const model::Job job = jobOf(model::DeviceKind::Cuda);
  EXPECT_EQ(recordIdentity(job, false).device, "one");
  EXPECT_EQ(recordIdentity(job, true).device, "one (sim)");
  EXPECT_EQ(recordIdentity(job, false).activation, model::DType::F16);
  EXPECT_EQ(recordIdentity(jobOf(model::DeviceKind::Host), false).activation, model::DType::F32);
  const auto costs = openRecordCosts(path, job); // written last: cuda, simulated
  ASSERT_TRUE(costs.ok()) << costs.status();
  const cost::Roofline truth(job.model->spec, *job.hardware, model::DType::F16, model::DType::F16);
  const cost::OpSite up = cost::opSiteOf(cost::Site::Up);
  EXPECT_EQ((*costs)->computeNs(up, {2, 2, 4}, false), truth.computeNs(up, {2, 2, 4}, false));
}

TEST_F(RecordCosts, RefusesAnotherModelDeviceOrTypes) {
  const model::Job job = jobOf(model::DeviceKind::Host);
  const cost::Record record = recordOf(job, false);
  model::Job other = job;
  other.model->spec->intermediate = 128;
  refused(record, other, "model_hash = ");
  refused(record, other, "this record is of another model");
  other = job;
  other.hardware->name = "two";
  refused(record, other, "device = one: this record is of another device, expected two");
  refused(recordOf(job, true), other, "device = one (sim): this record is of another device, expected two (sim)");
  other = job;
  other.goal.kvEncoding = model::DType::F16;
  refused(record, other, "kv = f32: this record is of another model, expected f16");
  other.goal.kvEncoding = model::Encoding::groups(4);
  other.model->spec->headDim = 32; // which a group of 32 divides
  model::Job packed = other;
  const cost::Record ofPacked = recordOf(packed, false);
  EXPECT_EQ(ofPacked.identity.kv, model::Encoding::groups(4, 32));
  EXPECT_TRUE(opened(ofPacked, packed).ok());
  packed.goal.kvEncoding = model::Encoding::groups(8);
  refused(ofPacked, packed, "kv = q4:32: this record is of another model, expected q8:32");
  refused(recordOf(jobOf(model::DeviceKind::Cuda), false), job, "activation = f16");
}

TEST_F(RecordCosts, RefusesWhatWasMeasuredUnderOtherFigures) {
  const model::Job host = jobOf(model::DeviceKind::Host), cuda = jobOf(model::DeviceKind::Cuda);
  model::Job other = host;
  other.hardware->h2dBandwidth = 8; // what the host's copies are paced to
  refused(recordOf(host, false), other,
          "hardware.h2d_bandwidth = \"10B/s\": this record was measured under another profile, expected \"8B/s\"");
  other = host;
  other.hardware->flopsF32 = 17; // the host computes as fast as it does
  EXPECT_TRUE(opened(recordOf(host, false), other).ok());
  refused(recordOf(host, true), other, "hardware.flops_f32 = \"1000FLOP/s\""); // virtual time as fast as it is told
  other.hardware = host.hardware;
  other.hardware->memoryBytes = 5; // where a plan must fit decides no time
  EXPECT_TRUE(opened(recordOf(host, true), other).ok());
  other = cuda;
  other.hardware->h2dBandwidth = 8; // a GPU's link is what it is
  EXPECT_TRUE(opened(recordOf(cuda, false), other).ok());
}

TEST_F(RecordCosts, RefusesRecordsWithHolesAndFilesThatAreNone) {
  const model::Job job = jobOf(model::DeviceKind::Host);
  cost::Record record = recordOf(job, false);
  record.cells.pop_back();
  refused(record, job,
          "the grid has holes: 1 of 8 cells are missing, first decode batch 2 sequence 8; headrace profile");
  record = recordOf(job, false);
  record.transfers.clear();
  refused(record, job, "no transfer times");
  const std::string text = cost::recordText(recordOf(job, false));
  folder.write("record.toml", text.substr(0, text.find("[end]")));
  EXPECT_THAT(messageOf(openRecordCosts(path, job)), HasSubstr("was cut off"));
  EXPECT_EQ(codeOf(openRecordCosts(folder.file("none.toml"), job)), absl::StatusCode::kNotFound);
}

TEST_F(RecordCosts, ReportsNameWhatIsThereAndWhatIsNot) {
  const model::Job job = jobOf(model::DeviceKind::Host);
  cost::Record record = recordOf(job, false);
  record.cells[0].at(cost::Site::Up) = {1000, 900, 1200};
  const std::string whole = recordReportText(record, "r.toml", cost::Slo{.factor = 2});
  EXPECT_THAT(whole, HasSubstr("host; activations f32, KV cache f32"));
  EXPECT_THAT(whole, HasSubstr("at most "));
  EXPECT_THAT(whole, HasSubstr("(prefill batch 1 sequence 4)")); // the widest spread
  EXPECT_THAT(whole, HasSubstr("batch\\seq"));
  record.layersRun = 1;
  record.mostTokens = {4, cost::kAnyTokens};
  std::erase_if(record.cells, [](const cost::Cell &c) {
    return c.phase == cost::Phase::Prefill ? c.batch * c.sequence > 4 : c.batch == 2;
  });
  record.layersEqual = false;
  for (cost::Cell &cell : record.cells)
    cell.layerNs = {100, 150};
  const std::string partial = recordReportText(record, "r.toml", cost::Slo{.factor = 2});
  EXPECT_THAT(partial, HasSubstr("1 of 2: more left no room"));
  EXPECT_THAT(partial, HasSubstr("1 pairs measured; 3 of more than 4 tokens left out"));
  EXPECT_THAT(partial, HasSubstr("2 pairs measured, 2 still missing"));
  EXPECT_THAT(partial, HasSubstr("the slowest takes 1.50 x the fastest"));
  EXPECT_THAT(partial, Not(HasSubstr("batch\\seq"))); // no table with holes
}

} // namespace
} // namespace headrace::tools
