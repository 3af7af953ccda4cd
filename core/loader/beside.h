/* SPDX-License-Identifier: MIT */
/* Finds files that are installed together with this library. */
#ifndef MOOR_LOADER_BESIDE_H
#define MOOR_LOADER_BESIDE_H

#include <moorage/abi/status.h>

/* Builds the path of `name` in the folder that holds this code: the library's folder, or the program's if the
 * library is linked into it. The file need not exist. ret_path: [out, owned] free().
 * REFUSED: the folder cannot be determined. */
moor_status moor__path_beside(const char *name, char **ret_path);

#endif
