/* SPDX-License-Identifier: MIT */
/* What is installed together with this library, wherever that is. */
#ifndef MOOR_LOADER_BESIDE_H
#define MOOR_LOADER_BESIDE_H

#include <moorage/abi/status.h>

/* The path of `name` in the folder that holds this code: the library's, or the program's that it is linked
 * into. Nothing need be there. ret_path: [out, owned] free(). REFUSED: the folder cannot be found out. */
moor_status moor__path_beside(const char *name, char **ret_path);

#endif
