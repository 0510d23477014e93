"""Three clean Transformers in other styles than the project's, and faults to plant in them."""
