/* functions.h - model-local functions, inlined.
 * Private to core/onnx. */
#ifndef GENAI_CORE_ONNX_FUNCTIONS_H
#define GENAI_CORE_ONNX_FUNCTIONS_H

#include "core/base/error.h"
#include "core/graph/arena.h"
#include "core/onnx/onnx.pb-c.h"

/* Every node of m's graph, and of graphs below it, that calls a function of m
 * becomes that function's nodes, which know the versions of their operators
 * (Node.opset).  a is m's allocator, charged to the budget.
 * Errors: GENAI_E_FORMAT, naming the function: it calls itself, reads or gives
 * what is not there, refers to an attribute that it does not have, has fewer
 * inputs or outputs than a call; GENAI_E_LIMIT; GENAI_E_NOMEM.  m is then good
 * for freeing only. */
int32_t genai_onnx_inline(Genai__Onnx__Model *m, ProtobufCAllocator *a,
			  struct genai_budget *budget, struct genai_error *err);

/* Is that version of a domain ("": ONNX's own) known (load.c)? */
int32_t genai_onnx_check_opset(const char *domain, int64_t version,
			       struct genai_error *err);

#endif
