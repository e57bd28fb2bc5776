"""The page of the estimator checks lists what the contract excuses, no more and no less."""

from support.excuses import PAGE, page_with_table


def test_the_page_lists_every_excused_check():
    assert PAGE.read_text(encoding="utf-8") == page_with_table(), (
        "run `python -m support.excuses` in the folder tests to write the table again"
    )
