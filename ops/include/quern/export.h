#pragma once

/// Marks the symbols that quern exports; everything else is hidden.
#define QUERN_API __attribute__((visibility("default")))
