/* A lane that calls the service of prices.toml, or of one like it. */
#include "prices.h"

extern "C" void shop(uint64_t context, uint64_t statuses[4], double *price, char label[16]) {
    struct prices_option_f64 found = {0, 0};
    uint64_t label_count = 15;
    statuses[0] = prices_of(context, 3, &found, 0);
    *price = found.is_some ? found.value : 0;
    statuses[1] = prices_label(context, 3, "item", 4, label, &label_count, 0);
    label[label_count] = 0;
    statuses[2] = prices_sold(context, 3, 4, 0);
    statuses[3] = prices_post_sold(context, 3, 5);
}
