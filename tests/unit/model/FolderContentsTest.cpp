// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/FolderContents.h"

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

using testing::HasSubstr;

TEST(FolderContents, OfAHubsCacheNamesTheSnapshot) {
  const TempFolder folder;
  for (const char *hash : {"0aaa", "9bbb"})
    folder.write(std::string("models--some--base/snapshots/") + hash + "/config.json", "{}");
  const std::string model = folder.file("models--some--base");
  const std::string text = "; this is a folder of the hub's cache: expected its snapshot, " + model + "/snapshots/";
  EXPECT_EQ(otherContentsText(model), text + "9bbb");
  folder.write("models--some--base/refs/main", "0aaa");
  EXPECT_EQ(otherContentsText(model), text + "0aaa");
  folder.write("models--some--base/refs/main", "gone");
  EXPECT_EQ(otherContentsText(model), text + "9bbb");
  EXPECT_EQ(otherContentsText(folder.path()),
            "; this is the hub's cache: expected a snapshot in it, such as " + model + "/snapshots/9bbb");
  EXPECT_EQ(otherContentsText(model + "/snapshots"),
            "; there is " + model + "/snapshots/0aaa/config.json: expected its folder");
}

TEST(FolderContents, OfAnAdapterAloneNamesItsBase) {
  const TempFolder folder;
  folder.write("adapter_model.safetensors", "x");
  folder.write("adapter_config.json", R"({"peft_type": "LORA", "base_model_name_or_path": "some/base"})");
  EXPECT_EQ(otherContentsText(folder.path()),
            "; there is an adapter (LORA) of \"some/base\" alone: expected a whole model, such as its base with the "
            "adapter merged into it (peft's merge_and_unload)");
  folder.write("adapter_config.json", "{}");
  EXPECT_THAT(otherContentsText(folder.path()), HasSubstr("there is an adapter alone: "));
  EXPECT_THAT(messageOf(refuseAdapter(folder.path())), HasSubstr("adapter_config.json: an adapter beside the model: "));
  folder.write("adapter_config.json", "{");
  EXPECT_THAT(otherContentsText(folder.path()), HasSubstr("adapter_config.json: expected JSON: "));
  EXPECT_THAT(messageOf(refuseAdapter(folder.path())), HasSubstr("adapter_config.json: expected JSON: "));
}

TEST(FolderContents, OfOtherWeightsNamesTheirForm) {
  const auto text = [](const std::string &name) {
    const TempFolder folder;
    folder.write("training_args.bin", "x"); // no weights
    folder.write("notes.txt", "x");
    folder.write(name, "x");
    return otherContentsText(folder.path());
  };
  EXPECT_EQ(text("a.txt"), "");
  EXPECT_THAT(text("pytorch_model-00001-of-00002.bin"),
              HasSubstr("there is \"pytorch_model-00001-of-00002.bin\", "
                        "weights of PyTorch's own form: expected safetensors"));
  EXPECT_THAT(text("consolidated.00.pth"), HasSubstr("weights of PyTorch's own form"));
  EXPECT_THAT(text("model.Q4_K_M.gguf"), HasSubstr("a model of llama.cpp: expected a Hugging Face folder"));
  EXPECT_THAT(text("tf_model.h5"), HasSubstr("weights of TensorFlow"));
  EXPECT_THAT(text("flax_model.msgpack"), HasSubstr("weights of Flax"));
  EXPECT_THAT(text("model.onnx"), HasSubstr("a model of ONNX"));
  EXPECT_EQ(text("model-00001-of-00002.safetensors"),
            "; there is \"model-00001-of-00002.safetensors\": expected the index of such files, too, "
            "model.safetensors.index.json");
  EXPECT_EQ(text("consolidated.safetensors"), "; there is \"consolidated.safetensors\": expected weights under the "
                                              "names that transformers gives them");
}

TEST(FolderContents, OfAFileSaysWhatIsExpectedInItsPlace) {
  EXPECT_EQ(modelFileText("a/b.gguf"), "a/b.gguf: a model of llama.cpp: expected a Hugging Face folder with "
                                       "safetensors, which it was made from");
  EXPECT_EQ(modelFileText("a/config.json"), "a/config.json: a file of a model: expected its folder, a");
  EXPECT_EQ(modelFileText("model.safetensors"), "model.safetensors: a file of a model: expected its folder, .");
  for (const char *other : {"a.toml", "a.plan", "a.json", "plan"})
    EXPECT_EQ(modelFileText(other), "") << other;
}

} // namespace
} // namespace headrace::model
