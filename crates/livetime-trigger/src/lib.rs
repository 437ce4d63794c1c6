//! Level-2 decisions: unpack, menu, prescales, trigger supervisor, event filters.
