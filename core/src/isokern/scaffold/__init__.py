"""The templates of backends: a folder for each kind, which is a package for a made-up chip called `acme`."""
