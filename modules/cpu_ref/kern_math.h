/* kern_math.h - functions of arrays, compiled for every level.
 * Needs the vector of one level (simd_*.h) and KERN(name). */

/* Loads and stores of one vector by dtype. */
VF vf vd_load(const void *p, uint32_t dtype)
{
	if (dtype == GENAI_DT_F32)
		return vf_load(p);
	return dtype == GENAI_DT_F16 ? vf_load_f16(p) : vf_load_bf16(p);
}

VF void vd_store(void *p, uint32_t dtype, vf v)
{
	if (dtype == GENAI_DT_F32)
		vf_store(p, v);
	else if (dtype == GENAI_DT_F16)
		vf_store_f16(p, v);
	else
		vf_store_bf16(p, v);
}

VF uint64_t vd_size(uint32_t dtype)
{
	return dtype == GENAI_DT_F32 ? 4 : 2;
}

VF vf vd_loadn(const void *p, uint32_t dtype, unsigned n)
{
	uint16_t t[16] = {0};

	if (dtype == GENAI_DT_F32)
		return vf_loadn(p, n);
	memcpy(t, p, n * sizeof(uint16_t));
	return vd_load(t, dtype);
}

VF void vd_storen(void *p, uint32_t dtype, vf v, unsigned n)
{
	uint16_t t[16];

	if (dtype == GENAI_DT_F32) {
		vf_storen(p, v, n);
		return;
	}
	vd_store(t, dtype, v);
	memcpy(p, t, n * sizeof(uint16_t));
}

/* e^x = 2^n * e^r with |r| <= ln(2)/2; 2^n in two factors, so that results
 * below the normal numbers are rounded once and overflow gives infinity. */
VF vf vf_exp(vf x)
{
	const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23 */
	vf t, n, r, p;
	vi i, h, bias = vi_set1(127);

	/* NaN passes: the comparison is false and x is taken */
	x = vf_min(vf_set1(89.0f), vf_max(vf_set1(-105.0f), x));
	t = vf_fma(x, vf_set1(1.44269504088896341f), magic);
	n = vf_sub(t, magic);
	r = vf_fma(n, vf_set1(-0.693359375f), x);
	r = vf_fma(n, vf_set1(2.12194440e-4f), r);
	p = vf_set1(1.9875691500e-4f);
	p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
	p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
	p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
	p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
	p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
	p = vf_fma(p, vf_mul(r, r), r);
	p = vf_add(p, vf_set1(1.0f));
	i = vi_sub(vf_ints(t), vf_ints(magic));
	h = vi_half(i);
	p = vf_mul(p, vi_floats(vi_shl(vi_add(h, bias), 23)));
	return vf_mul(p, vi_floats(vi_shl(vi_add(vi_sub(i, h), bias), 23)));
}

VF vf vf_sigmoid(vf x)
{
	vf e = vf_exp(vf_sub(vf_zero(), x));

	return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), e));
}

/* An odd polynomial near 0, 1 - 2 / (e^2x + 1) elsewhere. */
VF vf vf_tanh(vf x)
{
	vf a = vf_abs(x), z = vf_mul(x, x), p, big;

	p = vf_set1(-5.70498872745e-3f);
	p = vf_fma(p, z, vf_set1(2.06390887954e-2f));
	p = vf_fma(p, z, vf_set1(-5.37397155531e-2f));
	p = vf_fma(p, z, vf_set1(1.33314422036e-1f));
	p = vf_fma(p, z, vf_set1(-3.33332819422e-1f));
	p = vf_fma(vf_mul(p, z), x, x);
	big = vf_add(vf_exp(vf_add(a, a)), vf_set1(1.0f));
	big = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), big));
	/* NaN goes the polynomial's way; -0 stays -0 */
	big = vf_copysign(big, x);
	return vf_copysign(vf_if_lt(vf_set1(0.625f), a, big, p), x);
}

#define MAP1(name, expr)                                                       \
	static void KERN(name)(float *dst, const float *src, uint64_t n)       \
	{                                                                      \
		uint64_t i = 0;                                                \
                                                                               \
		for (; i + 16 <= n; i += 16) {                                 \
			vf x = vf_load(src + i);                               \
                                                                               \
			vf_store(dst + i, expr(x));                            \
		}                                                              \
		if (i < n) {                                                   \
			unsigned k = (unsigned)(n - i);                        \
			vf x = vf_loadn(src + i, k);                           \
                                                                               \
			vf_storen(dst + i, expr(x), k);                        \
		}                                                              \
	}
MAP1(exp, vf_exp)
MAP1(tanh, vf_tanh)
MAP1(sigmoid, vf_sigmoid)
#undef MAP1

static void KERN(rotate)(float *u, float *v, const float *cs, const float *sn,
			 uint64_t n)
{
	uint64_t i = 0;

	for (; i + 16 <= n; i += 16) {
		const vf a = vf_load(u + i), b = vf_load(v + i);
		const vf c = vf_load(cs + i), s = vf_load(sn + i);

		vf_store(u + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
		vf_store(v + i, vf_add(vf_mul(b, c), vf_mul(a, s)));
	}
	for (; i < n; i++) {
		const float a = u[i], b = v[i];

		u[i] = a * cs[i] - b * sn[i];
		v[i] = b * cs[i] + a * sn[i];
	}
}

static float KERN(dot)(const float *x, const float *y, uint64_t n)
{
	vf acc = vf_zero();
	uint64_t i = 0;

	for (; i + 16 <= n; i += 16)
		acc = vf_fma(vf_load(x + i), vf_load(y + i), acc);
	if (i < n)
		acc = vf_fma(vf_loadn(x + i, (unsigned)(n - i)),
			     vf_loadn(y + i, (unsigned)(n - i)), acc);
	return vf_sum(acc);
}

static float KERN(sum)(const float *x, uint64_t n)
{
	vf acc = vf_zero();
	uint64_t i = 0;

	for (; i + 16 <= n; i += 16)
		acc = vf_add(acc, vf_load(x + i));
	if (i < n)
		acc = vf_add(acc, vf_loadn(x + i, (unsigned)(n - i)));
	return vf_sum(acc);
}

static void KERN(widen)(float *dst, const void *src, uint32_t dtype, uint64_t n)
{
	const char *s = src;
	uint64_t i = 0;

	if (dtype == GENAI_DT_F32) {
		memcpy(dst, src, n * sizeof(float));
		return;
	}
	for (; i + 16 <= n; i += 16)
		vf_store(dst + i, vd_load(s + 2 * i, dtype));
	if (i < n)
		vf_storen(dst + i,
			  vd_loadn(s + 2 * i, dtype, (unsigned)(n - i)),
			  (unsigned)(n - i));
}

static void KERN(narrow)(void *dst, uint32_t dtype, const float *src,
			 uint64_t n)
{
	char *d = dst;
	uint64_t i = 0;

	if (dtype == GENAI_DT_F32) {
		memcpy(dst, src, n * sizeof(float));
		return;
	}
	for (; i + 16 <= n; i += 16)
		vd_store(d + 2 * i, dtype, vf_load(src + i));
	if (i < n)
		vd_storen(d + 2 * i, dtype,
			  vf_loadn(src + i, (unsigned)(n - i)),
			  (unsigned)(n - i));
}
