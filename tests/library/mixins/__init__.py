"""One module per mixin, which inherits the loop's contract, and the rules for all mixins."""
