"""The paper's figures and ours: one script a figure, each with its data, its plot and its command."""
