# SPDX-License-Identifier: Apache-2.0
# cmake -D FOLDER=examples -D OUTPUT=ShippedExamples.cpp -P EmbedExamples.cmake: the shapes and hardware profiles under FOLDER as
# the source of runtime/job/ShippedExamples.h.
set(text "// SPDX-License-Identifier: Apache-2.0\n// Written by cmake/EmbedExamples.cmake.\n")
string(APPEND text "#include \"runtime/job/ShippedExamples.h\"\n\nnamespace headrace::model {\nnamespace {\n\n")
string(APPEND text "constexpr ShippedExample kShipped[] = {\n")
foreach(kind hardware models)
  file(GLOB files "${FOLDER}/${kind}/*.toml") # in the order of their names
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WLE)
    file(READ "${file}" content)
    string(APPEND text "    {\"${kind}\", \"${name}\", R\"toml(${content})toml\"},\n")
  endforeach()
endforeach()
string(APPEND text "};\n\n} // namespace\n\nabsl::Span<const ShippedExample> shippedExamples() { return kShipped; }\n\n")
string(APPEND text "} // namespace headrace::model\n")
file(WRITE "${OUTPUT}" "${text}")
