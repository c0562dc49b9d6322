"""What work costs: beside other libraries, beside another revision, and part by part."""
