// SPDX-License-Identifier: Apache-2.0
//
// Compute ops: one for each kernel of kernels/Kernels.h, same operands, same meaning.
//
// Every op reads the meta buffer: it says how many rows there are (`tokens` or `sampled`), where they go, and so on.
// Weights are operands with byte ranges: a unit of placement holds a matrix, its bias and the norm in front of it, and
// `%unit[0 for 4096, 4096 for 64]` names the two tensors an op reads.
// In-place updates are explicit: a result that is tied to an operand is the buffer's next version.
#ifndef HEADRACE_COMPUTE_TD
#define HEADRACE_COMPUTE_TD

include "ir/HeadraceTypes.td"
include "ir/HeadraceInterfaces.td"

// One access of a step, in the words of ir/Accesses.h: `of` and `range` are getters' names without "get".
class Headrace_Access<string text> {
  string cpp = text;
}
class Headrace_Reads<string of, string arg = of>
    : Headrace_Access<"accesses.push_back(read(get" # of # "(), Arg::" # arg # "));">;
class Headrace_ReadsEach<string of, string arg>
    : Headrace_Access<"for (mlir::Value each : get" # of # "())\n    accesses.push_back(read(each, Arg::" # arg # "));">;
class Headrace_Writes<string of, string arg = of>
    : Headrace_Access<"accesses.push_back(write(get" # of # "(), Arg::" # arg # "));">;
class Headrace_Updates<string of, string arg = of>
    : Headrace_Access<"accesses.push_back(update(get" # of # "(), Arg::" # arg # "));">;
// The bytes `range` of the unit; an empty range is no access.
class Headrace_ReadsTensor<string range, string arg = range>
    : Headrace_Access<"readTensor(accesses, getUnit(), get" # range # "(), Arg::" # arg # ");">;
def Headrace_UsesScratch : Headrace_Access<"useScratch(accesses, getScratch());">;

// A step: `methods` of the interface beyond stepInfo and getAccesses. Of these, tiedOperand is written in
// ComputeOps.cpp; `result` says where the address of the step's new buffer is kept.
class Headrace_ComputeOp<string mnemonic, list<Headrace_Access> accesses, list<string> methods = [],
                         list<Trait> traits = [], string result = "&getProperties().at">
    : Headrace_Op<mnemonic, [DeclareOpInterfaceMethods<Headrace_StepInterface, methods>] # traits> {
  let extraClassDefinition =
      "StepInfo &$cppClass::stepInfo() { return getProperties().step; }\n" #
      "void $cppClass::getAccesses(::llvm::SmallVectorImpl<Access> &accesses) {\n  " #
      !interleave(!foreach(access, accesses, access.cpp), "\n  ") # "\n}\n" #
      !if(!empty(!filter(m, methods, !eq(m, "resultAddress"))), "",
          "Address *$cppClass::resultAddress() { return " # result # "; }\n") #
      !if(!empty(!filter(m, methods, !eq(m, "workspace"))), "",
          "Workspace *$cppClass::workspace() { return &getProperties().scratch; }\n");
}

defvar Headrace_NoAddress = "::headrace::ir::Address()";

def Headrace_EmbedOp : Headrace_ComputeOp<"embed",
    [Headrace_Reads<"Meta">, Headrace_ReadsTensor<"Table">, Headrace_ReadsTensor<"Positions">,
     Headrace_Reads<"Sampled">, Headrace_Updates<"History">, Headrace_Writes<"X">], ["resultAddress", "tiedOperand"],
    [Headrace_NameResults, AllTypesMatch<["history", "next_history"]>], "getInto() ? nullptr : &getProperties().at"> {
  let summary = "token (and position) rows of the embedding -> residual stream";
  let description = [{
    Reads token ids from `meta`, or from `sampled` where an id says "what this request sampled last", and keeps each in
    `history`, where its key and value are in a cache. With `direct` in its step, `unit` stays on the host and only the
    rows in use cross the link. With `into %d` the rows go there, where a residual stream that leaves the device is.
  }];
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DirectBuffer:$unit, Headrace_DeviceBuffer:$sampled,
                       Headrace_DeviceBuffer:$history, Optional<Headrace_DeviceBuffer>:$into, Headrace_RangeProp:$table, DefaultValuedProp<Headrace_RangeProp, "::headrace::ir::ByteRange()">:$positions,
                       Headrace_StepProp:$step, DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at);
  let results = (outs Headrace_DeviceBuffer:$x, Headrace_DeviceBuffer:$next_history);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $unit `` custom<Ranges>($table, $positions) `,` $sampled `,` $history
    (`into` $into^)? custom<StepAt>($step, $at) attr-dict
    `:` custom<EmbedTypes>(ref($into), type($into), type($meta), type($unit), type($sampled), type($history), type($x))
  }];
  let hasVerifier = 1;
}

def Headrace_NormOp : Headrace_ComputeOp<"norm",
    [Headrace_Reads<"Meta">, Headrace_Reads<"X">, Headrace_ReadsTensor<"Weight", "NormWeights">,
     Headrace_ReadsTensor<"Bias">, Headrace_Writes<"Y">], ["resultAddress"], [Headrace_NameResults]> {
  let summary = "LayerNorm (with a bias) or RMSNorm of each row";
  let arguments = (ins EnumProp<Headrace_Rows>:$rows, Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$x,
                       Headrace_DeviceBuffer:$unit, EnumProp<Headrace_UnitRole>:$role, Headrace_RangeProp:$weight,
                       DefaultValuedProp<Headrace_RangeProp, "::headrace::ir::ByteRange()">:$bias,
                       Headrace_StepProp:$step, DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at);
  let results = (outs Headrace_DeviceBuffer:$y);
  let assemblyFormat = [{
    $role $rows `` `(` $meta `)` $x `,` $unit `` custom<Ranges>($weight, $bias) custom<StepAt>($step, $at)
    attr-dict `:` custom<Types>(type($meta), type($x), type($unit)) `->` custom<Types>(type($y))
  }];
  let hasVerifier = 1;
}

def Headrace_LinearOp : Headrace_ComputeOp<"linear",
    [Headrace_Reads<"Meta">, Headrace_Reads<"X">, Headrace_ReadsTensor<"Weight">, Headrace_ReadsTensor<"Bias">,
     Headrace_Access<"if (getResidual()) accesses.push_back(update(getResidual(), Arg::Residual));">,
     Headrace_UsesScratch, Headrace_Access<"if (!getResidual()) accesses.push_back(write(getY(), Arg::Y));">], ["resultAddress", "tiedOperand", "workspace"], [Headrace_NameResults], "getResidual() ? nullptr : &getProperties().at"> {
  let summary = "y = epilogue(x W^T + bias), or residual += the same";
  let description = [{
    `role` names the linear op of the layer (or the head); `unit` is the unit that holds its matrix: with tied embeddings
    the head's is the embedding. With `onto %residual` the result is the residual's next version, in place.
  }];
  let arguments = (ins EnumProp<Headrace_UnitRole>:$role, EnumProp<Headrace_Rows>:$rows, Headrace_DeviceBuffer:$meta,
                       Headrace_DeviceBuffer:$x, Headrace_DeviceBuffer:$unit, Optional<Headrace_DeviceBuffer>:$residual,
                       Headrace_RangeProp:$weight,
                       DefaultValuedProp<Headrace_RangeProp, "::headrace::ir::ByteRange()">:$bias,
                       DefaultValuedProp<EnumProp<Headrace_Epilogue>, "::headrace::ir::Epilogue::None">:$epilogue,
                       Headrace_StepProp:$step, DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at,
                       DefaultValuedProp<Headrace_WorkspaceProp, "::headrace::ir::Workspace()">:$scratch);
  let results = (outs Headrace_DeviceBuffer:$y);
  let assemblyFormat = [{
    $role $rows `` `(` $meta `)` $x `,` $unit `` custom<LinearRanges>($weight, $bias, $epilogue) (`onto` $residual^)?
    custom<StepAtScratch>($step, $at, $scratch)
    attr-dict `:` custom<LinearTypes>(ref($residual), type($residual), type($meta), type($x), type($unit), type($y))
  }];
  let hasVerifier = 1;
}

def Headrace_RopeAppendOp : Headrace_ComputeOp<"rope_append",
    [Headrace_Reads<"Meta">, Headrace_ReadsTensor<"HeadNorms", "NormWeights">, Headrace_Updates<"Qkv", "X">,
     Headrace_Access<"updateCache(accesses, getKv(), getHome());">], ["tiedOperand"],
    [AttrSizedOperandSegments, AllTypesMatch<["qkv", "rotated"]>]> {
  let summary = "rotate q and k in place, append k and v to the KV cache";
  let description = [{
    Of a cache that is split `kv` names its blocks at home on the device, if it has such, then where its tail lies there;
    `home` the tail's home on the host, where the tail is not written back otherwise, then the mirror: rows are written
    there, too, and the step is direct. Each has its next version among `appended`, in this order. Behind the cache in `kv`
    stands what rebuild_kv has made of activation blocks, where there are such.

    With `norms %unit[...]` each head of q and of k is normalised before (RMSNorm): the brackets name the two norms'
    weights, which lie behind each other.
  }];
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$qkv, Variadic<Headrace_DeviceBuffer>:$kv,
                       Variadic<Headrace_HostBuffer>:$home, Optional<Headrace_DeviceBuffer>:$unit,
                       DefaultValuedProp<Headrace_RangeProp, "::headrace::ir::ByteRange()">:$head_norms,
                       Headrace_StepProp:$step);
  let results = (outs Headrace_DeviceBuffer:$rotated, Variadic<Headrace_WholeBuffer>:$appended);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $qkv `,` $kv (`home` $home^)? (`norms` $unit^ `` custom<Range>($head_norms))?
    custom<Step>($step) attr-dict `:` custom<RopeTypes>(ref($kv), ref($home), ref($unit), type($unit), type($meta),
                                                        type($qkv), type($kv), type($home), type($appended))
  }];
  let hasVerifier = 1;
}

def Headrace_AttentionOp : Headrace_ComputeOp<"attention",
    [Headrace_Reads<"Meta">, Headrace_Reads<"Qkv", "X">, Headrace_Access<"readCache(accesses, getKv());">, Headrace_UsesScratch,
     Headrace_Writes<"Out", "Y">], ["resultAddress", "workspace"], [Headrace_NameResults]> {
  let summary = "paged attention over a layer's KV cache: its blocks on the device, its tail there, if it is split, rebuilt blocks";
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$qkv, Variadic<Headrace_DeviceBuffer>:$kv,
                       Headrace_StepProp:$step, DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at,
                       DefaultValuedProp<Headrace_WorkspaceProp, "::headrace::ir::Workspace()">:$scratch);
  let results = (outs Headrace_DeviceBuffer:$out);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $qkv `,` $kv custom<StepAtScratch>($step, $at, $scratch)
    attr-dict `:` custom<AttentionTypes>(ref($kv), type($meta), type($qkv), type($kv)) `->` custom<Types>(type($out))
  }];
  let hasVerifier = 1;
}

// Attention in the cpu lane: the device rotates, rows are staged, the CPU appends and attends, the device fetches rows.
//
//   %rotated = rotate %qkv | %down = stage %rotated | %appended = append %down, %kv | %out = host_attention %down,
//   %appended | %attended = fetch_rows %out

def Headrace_RotateOp : Headrace_ComputeOp<"rotate",
    [Headrace_Reads<"Meta">, Headrace_ReadsTensor<"HeadNorms", "NormWeights">, Headrace_Updates<"Qkv", "X">],
    ["tiedOperand"], [AllTypesMatch<["qkv", "rotated"]>, Headrace_NameResults]> {
  let summary = "rotate q and k in place, as rope_append does before it appends";
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$qkv, Optional<Headrace_DeviceBuffer>:$unit,
                       DefaultValuedProp<Headrace_RangeProp, "::headrace::ir::ByteRange()">:$head_norms,
                       Headrace_StepProp:$step);
  let results = (outs Headrace_DeviceBuffer:$rotated);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $qkv (`norms` $unit^ `` custom<Range>($head_norms))? custom<Step>($step) attr-dict
    `:` custom<RotateTypes>(ref($unit), type($unit), type($meta), type($qkv), type($rotated))
  }];
  let hasVerifier = 1;
}

// Their caches are device buffers until homes are chosen, and host buffers from then on.
def Headrace_AppendOp : Headrace_ComputeOp<"append",
    [Headrace_Reads<"Meta">, Headrace_Reads<"Qkv", "X">, Headrace_Updates<"Kv", "KvHome">], ["tiedOperand"],
    [AllTypesMatch<["kv", "appended"]>, Headrace_NameResults]> {
  let summary = "append k and v to a KV cache at home on the host, by the CPU";
  let arguments = (ins Headrace_HostBuffer:$meta, Headrace_HostBuffer:$qkv, Headrace_DirectBuffer:$kv,
                       Headrace_StepProp:$step);
  let results = (outs Headrace_DirectBuffer:$appended);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $qkv `,` $kv custom<Step>($step)
    attr-dict `:` custom<Types>(type($meta), type($qkv), type($kv))
  }];
}

def Headrace_HostAttentionOp : Headrace_ComputeOp<"host_attention",
    [Headrace_Reads<"Meta">, Headrace_Reads<"Qkv", "X">, Headrace_Reads<"Kv", "KvHome">,
     Headrace_Access<"accesses.push_back(write(getInto(), Arg::Y));">,
     Headrace_Access<"if (getScratch()) accesses.push_back(write(getScratch(), Arg::Workspace));">],
    ["tiedOperand"], [AllTypesMatch<["into", "out"]>, Headrace_NameResults]> {
  let summary = "paged attention over a KV cache at home on the host, by the CPU";
  let arguments = (ins Headrace_HostBuffer:$meta, Headrace_HostBuffer:$qkv, Headrace_DirectBuffer:$kv,
                       Headrace_HostBuffer:$into, Optional<Headrace_HostBuffer>:$scratch, Headrace_StepProp:$step);
  let results = (outs Headrace_HostBuffer:$out);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $qkv `,` $kv `into` $into (`scratch` $scratch^)? custom<Step>($step) attr-dict
    `:` custom<HostAttentionTypes>(ref($scratch), type($scratch), type($meta), type($qkv), type($kv), type($into), type($out))
  }];
}

def Headrace_FetchRowsOp : Headrace_ComputeOp<"fetch_rows",
    [Headrace_Reads<"Meta">, Headrace_Reads<"X">, Headrace_Writes<"Y">], ["resultAddress"], [Headrace_NameResults]> {
  let summary = "rows that the CPU has made, read over the link";
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_HostBuffer:$x, Headrace_StepProp:$step,
                       DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at);
  let results = (outs Headrace_DeviceBuffer:$y);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $x custom<StepAt>($step, $at)
    attr-dict `:` custom<Types>(type($meta), type($x)) `->` custom<Types>(type($y))
  }];
  let hasVerifier = 1;
}

def Headrace_ActAppendOp : Headrace_ComputeOp<"act_append",
    [Headrace_Reads<"Meta">, Headrace_Reads<"X">, Headrace_Updates<"Act">], ["tiedOperand"],
    [AllTypesMatch<["act", "appended"]>]> {
  let summary = "keep the norm's rows of tokens whose block is an activation block";
  let description = [{
    Where `act` is at home on the host the rows are written there, and the step is direct.
  }];
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$x, Headrace_DirectBuffer:$act,
                       Headrace_StepProp:$step);
  let results = (outs Headrace_DirectBuffer:$appended);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $x `,` $act custom<Step>($step)
    attr-dict `:` custom<Types>(type($meta), type($x), type($act))
  }];
  let hasVerifier = 1;
}

def Headrace_RebuildKvOp : Headrace_ComputeOp<"rebuild_kv",
    [Headrace_Reads<"Meta">, Headrace_Reads<"Act">, Headrace_ReadsTensor<"Weight">, Headrace_ReadsTensor<"Bias">,
     Headrace_ReadsTensor<"HeadNorms", "NormWeights">, Headrace_UsesScratch, Headrace_Writes<"Rebuilt", "Y">],
    ["resultAddress", "workspace"], [Headrace_NameResults]> {
  let summary = "K and V of earlier tokens whose activations were kept: act [W_K W_V]^T + bias, normalised and rotated as new ones";
  let description = [{
    `act` holds the norm's output for earlier tokens (HybridServe's ACT blocks); `unit` is the layer's qkv unit, of which
    the brackets name the matrix and its bias, then `norms` the norms of heads. The result has the blocks' keys and values
    as a cache has them; rope_append and attention take it behind the cache.
  }];
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$act, Headrace_DeviceBuffer:$unit,
                       Headrace_RangeProp:$weight,
                       DefaultValuedProp<Headrace_RangeProp, "::headrace::ir::ByteRange()">:$bias,
                       DefaultValuedProp<Headrace_RangeProp, "::headrace::ir::ByteRange()">:$head_norms,
                       Headrace_StepProp:$step, DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at,
                       DefaultValuedProp<Headrace_WorkspaceProp, "::headrace::ir::Workspace()">:$scratch);
  let results = (outs Headrace_DeviceBuffer:$rebuilt);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $act `,` $unit `` custom<RebuildRanges>($weight, $bias, $head_norms)
    custom<StepAtScratch>($step, $at, $scratch)
    attr-dict `:` custom<Types>(type($meta), type($act), type($unit)) `->` custom<Types>(type($rebuilt))
  }];
  let hasVerifier = 1;
}

def Headrace_ActivateOp : Headrace_ComputeOp<"activate",
    [Headrace_Reads<"Meta">, Headrace_Reads<"X">, Headrace_Writes<"Y">], ["resultAddress"], [Headrace_NameResults]> {
  let summary = "silu(gate) * up of each row";
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$x, Headrace_StepProp:$step,
                       DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at);
  let results = (outs Headrace_DeviceBuffer:$y);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $x custom<StepAt>($step, $at)
    attr-dict `:` custom<Types>(type($meta), type($x)) `->` custom<Types>(type($y))
  }];
  let hasVerifier = 1;
}

def Headrace_GatherRowsOp : Headrace_ComputeOp<"gather_rows",
    [Headrace_Reads<"Meta">, Headrace_Reads<"X">, Headrace_Writes<"Y">], ["resultAddress"], [Headrace_NameResults]> {
  let summary = "the rows whose logits are wanted, one a sequence";
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$x, Headrace_StepProp:$step,
                       DefaultValuedProp<Headrace_AddressProp, Headrace_NoAddress>:$at);
  let results = (outs Headrace_DeviceBuffer:$y);
  let assemblyFormat = [{
    `sampled` `(` $meta `)` $x custom<StepAt>($step, $at)
    attr-dict `:` custom<Types>(type($meta), type($x)) `->` custom<Types>(type($y))
  }];
  let hasVerifier = 1;
}

def Headrace_KeepIdsOp : Headrace_ComputeOp<"keep_ids",
    [Headrace_Reads<"Meta">, Headrace_Reads<"Sampled">, Headrace_Updates<"History">], ["tiedOperand"],
    [Headrace_NameResults, AllTypesMatch<["history", "next_history"]>]> {
  let summary = "the tokens' ids, for sample, in a stage that does not embed";
  let description = [{
    Keeps ids as embed does: of `meta`, or of `sampled` where one says "what this request sampled last".

        %next_history = headrace.keep_ids tokens(%meta) %sampled, %history step<head> : <4096, bytes>, <256, bytes>, <512, bytes>
  }];
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$sampled, Headrace_DeviceBuffer:$history,
                       Headrace_StepProp:$step);
  let results = (outs Headrace_DeviceBuffer:$next_history);
  let assemblyFormat = [{
    `tokens` `(` $meta `)` $sampled `,` $history custom<Step>($step)
    attr-dict `:` custom<Types>(type($meta), type($sampled), type($history))
  }];
}

def Headrace_SampleOp : Headrace_ComputeOp<"sample",
    [Headrace_Reads<"Meta">, Headrace_Reads<"Logits", "X">, Headrace_Reads<"History">, Headrace_Updates<"Sampled">,
     Headrace_Updates<"Output">, Headrace_UsesScratch], ["tiedOperand", "workspace"],
    [AllTypesMatch<["sampled", "next_sampled"]>, AllTypesMatch<["output", "next_output"]>]> {
  let summary = "logits -> one token a sequence, kept for the next iteration (sampled) and for the host (output)";
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$logits, Headrace_DeviceBuffer:$history,
                       Headrace_DeviceBuffer:$sampled, Headrace_DeviceBuffer:$output, Headrace_StepProp:$step,
                       DefaultValuedProp<Headrace_WorkspaceProp, "::headrace::ir::Workspace()">:$scratch);
  let results = (outs Headrace_DeviceBuffer:$next_sampled, Headrace_DeviceBuffer:$next_output);
  let assemblyFormat = [{
    `sampled` `(` $meta `)` $logits `,` $history `,` $sampled `,` $output custom<StepScratch>($step, $scratch)
    attr-dict `:` custom<Types>(type($meta), type($logits), type($history), type($sampled), type($output))
  }];
}

def Headrace_PublishOp : Headrace_ComputeOp<"publish",
    [Headrace_Reads<"Meta">, Headrace_Reads<"Output">, Headrace_ReadsEach<"Streams", "Residual">]> {
  let summary = "the sampled tokens and the iteration's number become visible to the host";
  let description = [{
    Of a stage whose model goes on elsewhere so do the rows of each mini-batch's residual stream, at home on the host.

        headrace.publish sampled(%meta) %output sends %residual step<head> : <4096>, <256>, <host, 65536, f32>
  }];
  let arguments = (ins Headrace_DeviceBuffer:$meta, Headrace_DeviceBuffer:$output,
                       Variadic<Headrace_AwayBuffer>:$streams, Headrace_StepProp:$step);
  let assemblyFormat = [{
    `sampled` `(` $meta `)` $output (`sends` $streams^)? custom<Step>($step)
    attr-dict `:` custom<AttentionTypes>(ref($streams), type($meta), type($output), type($streams))
  }];
}

#endif // HEADRACE_COMPUTE_TD
