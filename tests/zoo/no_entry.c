/* SPDX-License-Identifier: MIT */
/* A shared library, but no provider. */
__attribute__((visibility("default"))) int zoo_something(void);
int zoo_something(void)
{
    return 1;
}
