/* SPDX-License-Identifier: MIT */
/* A library that is there when missing_dependency is linked, under a name that nobody has when it is loaded.
 */
__attribute__((visibility("default"))) void zoo_gone(void);
void zoo_gone(void)
{
}
