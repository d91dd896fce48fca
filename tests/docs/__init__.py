"""Tests of the pages: their code runs, their numbers are those of the files, the site builds."""
