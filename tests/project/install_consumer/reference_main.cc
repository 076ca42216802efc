// The scalar reference without quern::quern: rows {1, 0, 0, -1} and scale 1 / 127.
#include <cstdio>

#include "reference/quantize_rows.h"

int main() {
  const float a[4] = {1, 0, 0, -1};
  const auto row = quern::reference::quantize_row(quern::matrix_view(a, 1, 4), 0);
  const bool as_expected = row.q.size() == 4 && row.q[0] == 127 && row.q[1] == 0 &&
                           row.q[3] == -127 && row.scale == 1.0f / 127;
  std::printf("quantize_row: %s\n", as_expected ? "as expected" : "WRONG");
  return as_expected ? 0 : 1;
}
