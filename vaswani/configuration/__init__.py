"""An experiment's configuration: read strictly, checked, and made fairseq's."""
