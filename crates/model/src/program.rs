//! What a program asks of a machine: instructions, cache lines, memory.
