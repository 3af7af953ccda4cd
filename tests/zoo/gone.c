/* SPDX-License-Identifier: MIT */
/* missing_dependency links to this library, but no file has its soname when the loader looks for it. */
__attribute__((visibility("default"))) void zoo_gone(void);
void zoo_gone(void)
{
}
