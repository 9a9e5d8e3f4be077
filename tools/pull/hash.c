// hash.c - SHA-1 and SHA-256, FIPS 180-4.
#include "tools/pull/hash.h"

#include <stdio.h>
#include <string.h>

static uint32_t left(uint32_t v, int n)
{
	return v << n | v >> (32 - n);
}

static uint32_t right(uint32_t v, int n)
{
	return v >> n | v << (32 - n);
}

static void sha1_block(uint32_t s[8], const uint32_t in[16])
{
	static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc,
				      0xca62c1d6};
	uint32_t w[80], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4];

	memcpy(w, in, 64);
	for (int i = 16; i < 80; i++)
		w[i] = left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (int i = 0; i < 80; i++) {
		uint32_t f = i < 20		 ? (b & c) | (~b & d)
			     : i < 40 || i >= 60 ? b ^ c ^ d
						 : (b & c) | (b & d) | (c & d);
		uint32_t t = left(a, 5) + f + e + k[i / 20] + w[i];

		e = d;
		d = c;
		c = left(b, 30);
		b = a;
		a = t;
	}
	s[0] += a;
	s[1] += b;
	s[2] += c;
	s[3] += d;
	s[4] += e;
}

static const uint32_t k256[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void sha256_block(uint32_t s[8], const uint32_t in[16])
{
	uint32_t w[64], v[8];

	memcpy(w, in, 64);
	for (int i = 16; i < 64; i++) {
		uint32_t x = w[i - 15], y = w[i - 2];

		w[i] = w[i - 16] + (right(x, 7) ^ right(x, 18) ^ x >> 3) +
		       w[i - 7] + (right(y, 17) ^ right(y, 19) ^ y >> 10);
	}
	memcpy(v, s, 32);
	for (int i = 0; i < 64; i++) {
		uint32_t a = v[0], e = v[4];
		uint32_t t1 = v[7] +
			      (right(e, 6) ^ right(e, 11) ^ right(e, 25)) +
			      ((e & v[5]) ^ (~e & v[6])) + k256[i] + w[i];
		uint32_t t2 = (right(a, 2) ^ right(a, 13) ^ right(a, 22)) +
			      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 28);
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		s[i] += v[i];
}

static void take(struct hash *h)
{
	uint32_t w[16];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)h->block[4 * i] << 24 |
		       (uint32_t)h->block[4 * i + 1] << 16 |
		       (uint32_t)h->block[4 * i + 2] << 8 | h->block[4 * i + 3];
	if (h->wide)
		sha256_block(h->state, w);
	else
		sha1_block(h->state, w);
}

void hash_begin(struct hash *h, int wide)
{
	static const uint32_t narrow[8] = {0x67452301, 0xefcdab89, 0x98badcfe,
					   0x10325476, 0xc3d2e1f0};
	static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
					  0xa54ff53a, 0x510e527f, 0x9b05688c,
					  0x1f83d9ab, 0x5be0cd19};

	memcpy(h->state, wide ? first : narrow, sizeof(h->state));
	h->bytes = 0;
	h->wide = wide;
}

void hash_add(struct hash *h, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n) {
		size_t at = h->bytes % 64, k = 64 - at < n ? 64 - at : n;

		memcpy(h->block + at, p, k);
		h->bytes += k;
		p += k;
		n -= k;
		if (h->bytes % 64 == 0)
			take(h);
	}
}

void hash_end(struct hash *h, char out[HASH_HEX])
{
	uint64_t bits = h->bytes * 8;
	uint8_t length[8];

	for (int i = 0; i < 8; i++)
		length[i] = (uint8_t)(bits >> (56 - 8 * i));
	hash_add(h, "\x80", 1);
	while (h->bytes % 64 != 56)
		hash_add(h, "", 1);
	hash_add(h, length, 8);
	for (int i = 0; i < (h->wide ? 8 : 5); i++)
		sprintf(out + 8 * i, "%08x", h->state[i]);
}
