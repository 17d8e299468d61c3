"""Mathematics: arrays in, arrays out, the paper's symbols; numpy and scipy only."""
