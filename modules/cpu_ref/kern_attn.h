/* kern_attn.h - parts of attention, compiled for every level.
 *
 * Keys come in tiles of CREF_AT_TILE at absolute positions.  A tile gives a
 * row its largest score, the sum of e^(score - largest) and the weighted sum of
 * the values; tiles are folded in order of position.  Keys that a row does not
 * see add nothing, so a row's result depends on the keys it sees only. */

static void KERN(at_keys)(float *dst, const void *src, uint32_t dtype,
			  int64_t row, uint64_t n, uint64_t d)
{
	const int64_t size = (int64_t)vd_size(dtype);

	for (uint64_t j = 0; j < CREF_AT_TILE; j += 16) {
		float *to = dst + j / CREF_MM_COLS * CREF_MM_COLS * d +
			    j % CREF_MM_COLS;

		for (uint64_t i = 0; i < d; i += 16) {
			const unsigned v = d - i < 16 ? (unsigned)(d - i) : 16;
			vf r[16];

			for (unsigned k = 0; k < 16; k++) {
				const char *s =
					(const char *)src +
					((int64_t)(j + k) * row + (int64_t)i) *
						size;

				r[k] = j + k >= n ? vf_zero()
				       : v == 16  ? vd_load(s, dtype)
						  : vd_loadn(s, dtype, v);
			}
			vf_transpose(r);
			UNROLL16
			for (unsigned k = 0; k < 16; k++)
				if (k < v)
					vf_store(to + (i + k) * CREF_MM_COLS,
						 r[k]);
		}
	}
}

VF vf at_score(vf x, const struct cref_at_row *r, unsigned j)
{
	const vf none = vf_set1(-INFINITY);
	const unsigned lo = r->lo > j ? r->lo - j : 0, hi = r->hi - j;

	if (r->hi <= j || lo >= 16)
		return none;
	x = vf_mul(x, vf_set1(r->scale));
	if (r->softcap > 0) {
		const vf cap = vf_set1(r->softcap);

		x = vf_mul(cap, vf_tanh(vf_div(x, cap)));
	}
	if (r->bias) {
		const char *b =
			(const char *)r->bias + j * vd_size(r->bias_dtype);

		x = vf_add(x, hi >= 16 ? vd_load(b, r->bias_dtype)
				       : vd_loadn(b, r->bias_dtype, hi));
	}
	if (lo == 0 && hi >= 16)
		return x;
	return vf_range(x, lo, hi < 16 ? hi : 16, none);
}

static void KERN(at_softmax)(float *s, const struct cref_at_row *r, float *m,
			     float *l)
{
	vf x[CREF_AT_TILE / 16], top = vf_set1(-INFINITY);

	for (unsigned i = 0; i < CREF_AT_TILE / 16; i++) {
		x[i] = at_score(vf_load(s + i * 16), r, i * 16);
		top = vf_max(x[i], top);
	}
	*m = vf_hmax(top);
	*l = 0;
	if (*m == -INFINITY) {
		memset(s, 0, CREF_AT_TILE * sizeof(float));
		return;
	}
	top = vf_set1(*m);
	for (unsigned i = 0; i < CREF_AT_TILE / 16; i++) {
		x[i] = vf_exp(vf_sub(x[i], top));
		vf_store(s + i * 16, x[i]);
	}
	*l = vf_sum(vf_add(vf_add(x[0], x[1]), vf_add(x[2], x[3])));
}

static void KERN(at_fold)(uint64_t n, float *acc, float *m, float *l,
			  const float *tacc, const float *tm, const float *tl,
			  uint64_t wide)
{
	float top[CREF_AT_ROWS], f[2 * CREF_AT_ROWS] = {0};

	for (uint64_t r = 0; r < n; r++) {
		top[r] = m[r] > tm[r] ? m[r] : tm[r];
		f[2 * r] = m[r] - top[r];
		f[2 * r + 1] = tm[r] - top[r];
	}
	KERN(exp)(f, f, 2 * n);
	for (uint64_t r = 0; r < n; r++) {
		const vf g = vf_set1(f[2 * r]), h = vf_set1(f[2 * r + 1]);
		float *a = acc + r * wide;
		const float *b = tacc + r * wide;

		if (tm[r] == -INFINITY) /* sees nothing of the tile */
			continue;
		for (uint64_t i = 0; i < wide; i += 16)
			vf_store(a + i, vf_fma(vf_load(b + i), h,
					       vf_mul(vf_load(a + i), g)));
		m[r] = top[r];
		l[r] = fmaf(tl[r], f[2 * r + 1], l[r] * f[2 * r]);
	}
}
