// op_run.c - launching kernels, for run functions.
#include "modules/cuda_ep/op.h"

int32_t cep_run_cluster(struct cep_run *r, enum cep_kernel k,
			struct cep_dim3 grid, uint32_t threads, uint32_t smem,
			uint32_t cluster, const void *params)
{
	CUlaunchAttribute attr[2];
	CUlaunchConfig c = {
		.gridDimX = grid.x,
		.gridDimY = grid.y,
		.gridDimZ = grid.z,
		.blockDimX = threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = smem,
		.hStream = r->stream,
		.attrs = attr,
	};
	void *args[1] = {(void *)(uintptr_t)params};
	CUlaunchAttribute *a = attr;
	CUresult e;

	if (!grid.x || !grid.y || !grid.z)
		return 0; // nothing to do
	memset(attr, 0, sizeof(attr));
	if (r->overlap && r->self->pdl) {
		a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		a++->value.programmaticStreamSerializationAllowed = 1;
	} else {
		r->alone = true;
	}
	if (cluster > 1 && r->self->major >= 9) {
		a->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
		a->value.clusterDim.x = cluster;
		a->value.clusterDim.y = 1;
		a++->value.clusterDim.z = 1;
	}
	c.numAttrs = (unsigned int)(a - attr);
	e = CU(r->self, cuLaunchKernelEx)(&c, r->self->kernels[k], args, NULL);
	if (e)
		return cep_cuda_fail(r->self, r->err, e,
				     "kernel %u of %u x %u x %u blocks, %u "
				     "bytes of shared memory",
				     (uint32_t)k, grid.x, grid.y, grid.z, smem);
	r->overlap = true;
	return 0;
}

int32_t cep_run_kernel(struct cep_run *r, enum cep_kernel k,
		       struct cep_dim3 grid, uint32_t threads, uint32_t smem,
		       const void *params)
{
	return cep_run_cluster(r, k, grid, threads, smem, 1, params);
}

struct cep_blame cep_blame_of(const struct cep_node *n, const struct cep_run *r)
{
	return (struct cep_blame){r->self->fault_addr, r->self->fault_lock,
				  r->plan, n->index};
}

uint32_t cep_blocks(const struct cep *self, uint64_t count)
{
	uint64_t b = (count + 255) / 256, most = (uint64_t)self->n_sms * 16;

	return (uint32_t)(b < most ? b : most);
}

enum cep_kernel cep_by_dtype(uint32_t dtype, enum cep_kernel f32,
			     enum cep_kernel f16, enum cep_kernel bf16)
{
	return dtype == GENAI_DT_F32 ? f32 : dtype == GENAI_DT_F16 ? f16 : bf16;
}

// Merge neighbouring dims where both sides allow it; drop dims of 1.
static uint32_t collapse(uint32_t rank, const int64_t *dims, const int64_t *ds,
			 const int64_t *ss, struct cep_ew *p)
{
	uint32_t n = 0;

	for (uint32_t d = 0; d < rank; d++) {
		if (dims[d] == 1)
			continue;
		if (n && p->os[n - 1] == ds[d] * dims[d] &&
		    p->is[0][n - 1] == ss[d] * dims[d]) {
			p->dims[n - 1] *= dims[d];
		} else {
			if (n == CEP_DIMS)
				return UINT32_MAX;
			p->dims[n++] = dims[d];
		}
		p->os[n - 1] = ds[d];
		p->is[0][n - 1] = ss[d];
	}
	return n;
}

// Widest unit in which the innermost dim can be moved.
static uint32_t widen(struct cep_ew *p, uint32_t unit)
{
	while (unit < 16 && p->rank) {
		uint32_t in = p->rank - 1;

		if (p->os[in] != 1 || p->is[0][in] != 1 || p->dims[in] % 2 ||
		    p->out % (unit * 2) || p->in[0] % (unit * 2))
			return unit;
		for (uint32_t d = 0; d < in; d++)
			if (p->os[d] % 2 || p->is[0][d] % 2)
				return unit;
		for (uint32_t d = 0; d < in; d++) {
			p->os[d] /= 2;
			p->is[0][d] /= 2;
		}
		p->dims[in] /= 2;
		p->count /= 2;
		unit *= 2;
	}
	return unit;
}

int32_t cep_run_copy(struct cep_run *r, uint32_t elem_bytes, uint32_t rank,
		     const int64_t *dims, uint64_t dst, const int64_t *ds,
		     uint64_t src, const int64_t *ss)
{
	struct cep_ew p = {.count = 1, .out = dst, .n_in = 1};
	enum cep_kernel k;

	p.in[0] = src;
	for (uint32_t d = 0; d < rank; d++)
		p.count *= (uint64_t)dims[d];
	if (!p.count)
		return 0;
	if (!elem_bytes) {
		int64_t bytes = (int64_t)((p.count + 1) / 2), one = 1;

		return cep_run_copy(r, 1, 1, &bytes, dst, &one, src, &one);
	}
	p.rank = collapse(rank, dims, ds, ss, &p);
	if (p.rank == UINT32_MAX)
		return cep_fail(r->self, r->err, GENAI_E_UNSUPPORTED,
				"a copy of more than %d dimensions", CEP_DIMS);
	elem_bytes = widen(&p, elem_bytes);
	p.dense = !p.rank || (p.rank == 1 && p.os[0] == 1 && p.is[0][0] == 1);
	k = elem_bytes == 1   ? CEP_K_cep_copy_1
	    : elem_bytes == 2 ? CEP_K_cep_copy_2
	    : elem_bytes == 4 ? CEP_K_cep_copy_4
	    : elem_bytes == 8 ? CEP_K_cep_copy_8
			      : CEP_K_cep_copy_16;
	return cep_run_kernel(
		r, k, (struct cep_dim3){cep_blocks(r->self, p.count), 1, 1},
		256, 0, &p);
}
