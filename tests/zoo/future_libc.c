/* SPDX-License-Identifier: MIT */
/* Stands in for the C library when newer_libc is linked: the same soname, but a version that does not
 * exist yet. */
__attribute__((visibility("default"))) void zoo_function_of_the_future(void);
void zoo_function_of_the_future(void)
{
}
