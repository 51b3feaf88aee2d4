"""Every command of the contract, and a store that fails or dies at a commit that is counted."""
