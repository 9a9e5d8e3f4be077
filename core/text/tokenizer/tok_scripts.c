// tok_scripts.c - the UnicodeScripts pre-tokenizer: a cut wherever the script
// changes.  PCRE2 knows the scripts; it offers them only through patterns.
#include "core/text/tokenizer/tok.h"

#include <string.h>

// ISO 15924 codes of the scripts that PCRE2 10.42 knows, commonest first; the
// ones that the pre-tokenizer takes for Han come in one class of their own.
static const char scripts[] =
	"LatnGrekCyrlZinhArmnHebrArabSyrcThaaDevaBengGuruGujrOryaTamlTeluKnda"
	"MlymSinhThaiLaooTibtMymrGeorHangEthiCherCansOgamRunrKhmrMongBopoYiii"
	"ItalGothDsrtTglgHanoBuhdTagbLimbTaleLinbShawOsmaCprtBraiBugiCoptTalu"
	"GlagTfngSyloXpeoKharBaliXsuxPhnxPhagNkooSundLepcOlckVaiiSaurKaliRjng"
	"LyciCariLydiChamLanaTavtAvstEgypSamrLisuBamuJavaMteiArmiSarbPrtiPhli"
	"OrkhKthiBatkBrahMandCakmMercMeroPlrdShrdSoraTakrAghbBassDuplElbaGran"
	"HmngKhojLinaMahjManiMendModiMrooNarbNbatPalmPaucPermPhlpSiddSindTirh"
	"WaraAhomHluwHatrMultHungSgnwAdlmBhksMarcNewaOsgeTangGonmNshuSoyoZanb"
	"DogrGongMakaMedfRohgSogdSogoElymHmnpNandWchoChrsDiakKitsYeziCpmnOugr"
	"TnsaTotoVith";

// The reference's script table is of Unicode 9: younger pictographs have no
// script there.  (Letters of younger scripts do get one here.)
#define YOUNG                                                                  \
	"\\x{1f10d}-\\x{1f10f}\\x{1f12f}\\x{1f16c}-\\x{1f16f}\\x{1f1ad}"       \
	"\\x{1f260}-\\x{1f265}\\x{1f6d3}-\\x{1f6df}\\x{1f6f7}-\\x{1f6ff}"      \
	"\\x{1f7d5}-\\x{1f7ff}\\x{1f8b0}-\\x{1f90f}\\x{1f91f}"                 \
	"\\x{1f928}-\\x{1f92f}\\x{1f931}\\x{1f932}\\x{1f93f}"                  \
	"\\x{1f94c}-\\x{1f94f}\\x{1f95f}-\\x{1f97f}\\x{1f992}-\\x{1f9bf}"      \
	"\\x{1f9c1}-\\x{1fbff}"

int32_t tok_scripts_compile(const struct tok_load *l, struct tok_regex **out)
{
	static const char han[] =
		"[\\p{sc:Hani}\\p{sc:Hira}\\p{sc:Kana}"
		"\\x{30fc}]+(*MARK:Hani)|"
		"[^\\P{sc:Zyyy} \\x{30fc}" YOUNG "]+(*MARK:Zyyy)";
	struct tok_buf re = {0};
	const char *s;
	int32_t rc;

	tok_buf_add(&re, han, sizeof(han) - 1);
	for (s = scripts; *s; s += 4) {
		tok_buf_add(&re, "|\\p{sc:", 7);
		tok_buf_add(&re, s, 4);
		tok_buf_add(&re, "}+(*MARK:", 9);
		tok_buf_add(&re, s, 4);
		tok_buf_add(&re, ")", 1);
	}
	tok_buf_add(&re, "", 1);
	rc = re.failed ? tok_nomem(l->err)
		       : tok_regex_compile(l, re.p, re.n - 1, out);
	tok_buf_free(&re);
	return rc;
}

int32_t tok_scripts_split(const struct tok_regex *re, struct tok_work *w,
			  const char *text, const struct tok_piece *piece,
			  struct tok_buf *out)
{
	size_t at = 0, from, to, start = 0;
	const char *mark, *last = NULL;
	struct tok_piece p;
	int32_t rc;

	// Blanks and unassigned characters belong to what came before them.
	while ((rc = tok_regex_find(re, w->md, text, piece->len, at, &from, &to,
				    &mark, w->err)) > 0) {
		if (!last || strcmp(last, mark)) {
			p = (struct tok_piece){piece->off + start, from - start,
					       piece->at_start && !start};
			if (last)
				tok_buf_add(out, &p, sizeof(p));
			start = from;
			last = mark;
		}
		at = to;
	}
	p = (struct tok_piece){piece->off + start, piece->len - start,
			       piece->at_start && !start};
	if (!rc && last)
		tok_buf_add(out, &p, sizeof(p));
	return rc;
}
