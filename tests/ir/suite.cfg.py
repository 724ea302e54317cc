# SPDX-License-Identifier: Apache-2.0
# Tests on IR text. Run through ctest, which fills in the tools' paths (lit.site.cfg.py.in).
import os

import lit.formats

config.name = "headrace"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.test_source_root = os.path.join(config.headrace_source_dir, "tests")
config.excludes = ["unit", "conformance", "golden", "fuzz", "tools", "Inputs"]
config.substitutions += [
    ("headrace-opt", config.headrace_opt),
    ("FileCheck", config.filecheck),
    ("%not", config.not_tool),
    ("%python", config.python),
    ("%source", config.headrace_source_dir),
]
config.environment["PYTHONDONTWRITEBYTECODE"] = "1"
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
