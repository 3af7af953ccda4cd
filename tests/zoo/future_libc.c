/* SPDX-License-Identifier: MIT */
/* The C library that newer_libc is linked with, under the name and with a version of the real one's. */
__attribute__((visibility("default"))) void zoo_function_of_the_future(void);
void zoo_function_of_the_future(void)
{
}
