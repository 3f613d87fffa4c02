/* SPDX-License-Identifier: Apache-2.0 */
/* trainctl: the command line of a Steadfast cluster. */
#include "trainctl/ctl.h"

int main(int argc, char **argv)
{
    return ctl_run(argc, argv);
}
