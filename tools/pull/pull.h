/* pull.h - models of a hub, in the folder where huggingface_hub keeps them. */
#ifndef GENAI_TOOLS_PULL_PULL_H
#define GENAI_TOOLS_PULL_PULL_H

#include "tools/cli.h"

/* If *path is nothing that exists but the name of a repository that was pulled,
 * ORG/NAME or ORG/NAME:PART, buf becomes where it is, and *path that. */
int32_t pull_resolve(struct cli *c, const char **path, char *buf, size_t cap);

#endif
